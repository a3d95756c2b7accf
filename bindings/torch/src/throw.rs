//! Throws PyTorch's own exceptions.
//!
//! PyTorch does not check the result of an allocator for null, so a failure must be an exception. For Python to see
//! `torch.OutOfMemoryError`, it must be a `c10::OutOfMemoryError`. No function creates or throws that class: its
//! constructors are inherited and inlined at every throw. So it is built here as a C++ compiler would:
//!
//! 1. `__cxa_allocate_exception` allocates the exception;
//! 2. the constructor of `c10::Error` initialises it; the class adds no member to its base;
//! 3. the vtable of the class replaces that of its base;
//! 4. `__cxa_throw` throws it, with the class's type and its destructor, which is the first function of the vtable.
//!
//! All symbols are found by name in the loaded libraries, at the time of the failure; nothing is linked. Mangled names
//! contain the argument types. So a version of PyTorch that changes them has other names, and no function is called
//! with wrong arguments. libstdc++ itself constructs and destroys the `std::string` with the text. So only its maximum
//! size matters here, and not its layout.
//!
//! If a symbol is missing, `c10::detail::torchCheckFail` throws `c10::Error` with the same text. If that is missing
//! too, the C++ runtime throws `std::runtime_error`, which PyTorch and pybind11 convert to a Python `RuntimeError`.
//! Without a C++ runtime no caller can catch an exception, and the text goes to stderr.
//!
//! The exception unwinds through functions of this crate. They are `extern "C-unwind"`, which permits that, and none of
//! them catches it: `entry::guarded` catches panics before.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;

use crate::error::Error;
use crate::symbols::Symbols;
use cachette_process::write_line;

/// Room for an exception. `c10::Error` has about 200 bytes.
const ROOM: usize = 1024;

/// Throws `error` as PyTorch's own exception, or else as a standard one. Returns only in a process without C++, after a
/// message on stderr.
#[cold]
pub(crate) fn raise(error: &Error) {
    let symbols = Symbols::look();
    let text = error.to_string();
    // A zero byte would truncate the text, and no error text contains one.
    if let Ok(text) = CString::new(text.as_str()) {
        if error.is_out_of_memory()
            && let Some(thrower) = Thrower::find(&symbols)
        {
            thrower.throw(&text);
        }
        throw_plainly(&symbols, &text);
        throw_standard(&symbols, &text);
    }
    write_line(text);
}

/// `c10::SourceLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// The source location of the exceptions.
const HERE: SourceLocation =
    SourceLocation { function: c"cachette_torch_alloc".as_ptr(), file: c"cachette".as_ptr(), line: 0 };

/// Room for a `std::string`, which has 32 bytes.
type StdString = MaybeUninit<[u64; 8]>;

/// `void *__cxa_allocate_exception(size_t)`.
type AllocateException = unsafe extern "C" fn(bytes: usize) -> *mut c_void;
/// `void __cxa_throw(void *exception, std::type_info *type, void (*destroy)(void *))`.
type Throw = unsafe extern "C-unwind" fn(exception: *mut c_void, type_info: *mut c_void, destroy: *mut c_void) -> !;
/// `std::string::string(const char *, const std::allocator<char> &)`; it throws if memory is exhausted.
type MakeString = unsafe extern "C-unwind" fn(this: *mut StdString, text: *const c_char, allocator: *const u8);
/// `std::string::~string()`.
type DestroyString = unsafe extern "C" fn(this: *mut StdString);
/// `c10::Error::Error(c10::SourceLocation, std::string)`. The string is passed by its address, and the caller destroys
/// it.
type MakeError = unsafe extern "C-unwind" fn(this: *mut c_void, place: SourceLocation, text: *mut StdString);
/// `void c10::detail::torchCheckFail(const char *, const char *, uint32_t, const char *)`.
type CheckFail =
    unsafe extern "C-unwind" fn(function: *const c_char, file: *const c_char, line: u32, text: *const c_char) -> !;

const MAKE_STRING: &CStr = c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_";
const DESTROY_STRING: &CStr = c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev";
/// The constructor of complete objects, and the identical one of base objects.
const MAKE_ERROR: [&CStr; 2] = [
    c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    c"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
];
const TYPE_INFO: &CStr = c"_ZTIN3c1016OutOfMemoryErrorE";
const VIRTUAL_TABLE: &CStr = c"_ZTVN3c1016OutOfMemoryErrorE";
/// `void std::__throw_runtime_error(const char *)`.
type ThrowStandard = unsafe extern "C-unwind" fn(text: *const c_char) -> !;

const THROW_STANDARD: &CStr = c"_ZSt21__throw_runtime_errorPKc";
const CHECK_FAIL: &CStr = c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_";

/// The symbols that are needed to throw `c10::OutOfMemoryError`.
#[derive(Clone, Copy)]
struct Thrower {
    allocate_exception: AllocateException,
    throw: Throw,
    make_string: MakeString,
    destroy_string: DestroyString,
    make_error: MakeError,
    type_info: *mut c_void,
    /// The first virtual function: two words into the vtable, after the offset and the type.
    functions: *mut *mut c_void,
}

impl Thrower {
    fn find(symbols: &Symbols) -> Option<Self> {
        // SAFETY: the C++ ABI defines the type of this function.
        let allocate_exception = unsafe { symbols.function(c"__cxa_allocate_exception") };
        // SAFETY: the C++ ABI defines the type of this function.
        let throw = unsafe { symbols.function(c"__cxa_throw") };
        // SAFETY: the mangled name contains the class and the arguments.
        let make_string = unsafe { symbols.function(MAKE_STRING) };
        // SAFETY: the mangled name contains the class and the arguments.
        let destroy_string = unsafe { symbols.function(DESTROY_STRING) };
        let make_error = MAKE_ERROR
            .iter()
            // SAFETY: the mangled name contains the class and the arguments.
            .find_map(|name| unsafe { symbols.function(name) });
        let table = symbols.object(VIRTUAL_TABLE)?.cast::<*mut c_void>();
        Some(Self {
            allocate_exception: allocate_exception?,
            throw: throw?,
            make_string: make_string?,
            destroy_string: destroy_string?,
            make_error: make_error?,
            type_info: symbols.object(TYPE_INFO)?,
            functions: table.wrapping_add(2),
        })
    }

    fn throw(self, text: &CStr) -> ! {
        let exception = self.make(text);
        // SAFETY: an object with virtual functions begins with the address of its vtable.
        unsafe { exception.cast::<*mut *mut c_void>().write(self.functions) };
        // SAFETY: the vtable of a class that can be thrown begins with its destructor.
        let destroy = unsafe { self.functions.read() };
        // SAFETY: the exception is complete, has this type, and is destroyed by this function.
        unsafe { (self.throw)(exception, self.type_info, destroy) }
    }

    /// Constructs a `c10::Error` with `text` as an exception.
    fn make(self, text: &CStr) -> *mut c_void {
        let mut string = StdString::uninit();
        // `std::allocator` has no member, so the pointer is never dereferenced.
        let allocator = 0;
        // SAFETY: the room is large enough for a string, and the text ends with a zero.
        unsafe { (self.make_string)(&raw mut string, text.as_ptr(), &raw const allocator) };
        // SAFETY: any size is valid; without memory the C++ runtime ends the process.
        let exception = unsafe { (self.allocate_exception)(ROOM) };
        // SAFETY: the room is large enough for an error, and the string is complete.
        unsafe { (self.make_error)(exception, HERE, &raw mut string) };
        // SAFETY: the string is valid, moved from or not, and destroyed once.
        unsafe { (self.destroy_string)(&raw mut string) };
        exception
    }
}

/// Throws `c10::Error`, if there is one.
fn throw_plainly(symbols: &Symbols, text: &CStr) {
    // SAFETY: the mangled name contains the arguments.
    let found = unsafe { symbols.function::<CheckFail>(CHECK_FAIL) };
    if let Some(check_fail) = found {
        // SAFETY: all three texts end with a zero, and it copies them.
        unsafe { check_fail(HERE.function, HERE.file, HERE.line, text.as_ptr()) }
    }
}

/// Throws `std::runtime_error`, if there is a C++ runtime.
fn throw_standard(symbols: &Symbols, text: &CStr) {
    // SAFETY: the mangled name contains the arguments.
    let found = unsafe { symbols.function::<ThrowStandard>(THROW_STANDARD) };
    if let Some(throw) = found {
        // SAFETY: the text ends with a zero, and it copies it.
        unsafe { throw(text.as_ptr()) }
    }
}
