//! Throws PyTorch's own exceptions.
//!
//! PyTorch takes null from an allocator for memory, so a failure has to be an exception, and for Python to see
//! `torch.OutOfMemoryError` it has to be `c10::OutOfMemoryError`. That class has no function that makes or throws it: its
//! constructors are inherited and inlined wherever it is thrown. So it is made here as a C++ compiler would:
//!
//! 1. `__cxa_allocate_exception` gives room for it;
//! 2. `c10::Error`'s own constructor fills the room, and the class adds no member to its base;
//! 3. the class's table of virtual functions replaces that of its base;
//! 4. `__cxa_throw` throws it, with the class's type and its destructor, which is the first function of that table.
//!
//! All of it is found by name in the libraries that are loaded, at the moment of the failure; nothing is linked. The
//! names of functions hold the types of their arguments, so a version of PyTorch that changes those has other names, and
//! nothing is called wrongly. The text is handed over in a `std::string` that libstdc++ itself makes and destroys, so its
//! layout does not matter here, only that it is not larger than the room for it.
//!
//! Where something is missing, `c10::detail::torchCheckFail` throws `c10::Error` with the same text. Where that is missing
//! too, the C++ runtime throws `std::runtime_error`, which PyTorch and pybind11 make a `RuntimeError` of Python. Without a C++
//! runtime there is no caller that could catch anything, and the text goes to stderr.
//!
//! The exception passes through functions of this crate on its way. They are `extern "C-unwind"`, which permits that,
//! and nothing in them catches it: a panic is caught before, in `entry::guarded`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;

use crate::error::Error;
use crate::symbols::Symbols;
use cachette_process::write_line;

/// Room for an exception. `c10::Error` has about 200 bytes.
const ROOM: usize = 1024;

/// Throws `error` as PyTorch's own exception, or else as a standard one; it returns only in a process without C++, after
/// writing to stderr.
#[cold]
pub(crate) fn raise(error: &Error) {
    let symbols = Symbols::look();
    let text = error.to_string();
    // Only the part before a zero byte could be told, and no text of ours has one.
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

/// Where exceptions are said to come from.
const HERE: SourceLocation =
    SourceLocation { function: c"cachette_torch_alloc".as_ptr(), file: c"cachette".as_ptr(), line: 0 };

/// Room for a `std::string`, which has 32 bytes.
type StdString = MaybeUninit<[u64; 8]>;

/// `void *__cxa_allocate_exception(size_t)`.
type AllocateException = unsafe extern "C" fn(bytes: usize) -> *mut c_void;
/// `void __cxa_throw(void *exception, std::type_info *type, void (*destroy)(void *))`.
type Throw = unsafe extern "C-unwind" fn(exception: *mut c_void, type_info: *mut c_void, destroy: *mut c_void) -> !;
/// `std::string::string(const char *, const std::allocator<char> &)`; it throws where memory has run out.
type MakeString = unsafe extern "C-unwind" fn(this: *mut StdString, text: *const c_char, allocator: *const u8);
/// `std::string::~string()`.
type DestroyString = unsafe extern "C" fn(this: *mut StdString);
/// `c10::Error::Error(c10::SourceLocation, std::string)`. The string goes by its address, and stays the caller's to
/// destroy.
type MakeError = unsafe extern "C-unwind" fn(this: *mut c_void, place: SourceLocation, text: *mut StdString);
/// `void c10::detail::torchCheckFail(const char *, const char *, uint32_t, const char *)`.
type CheckFail =
    unsafe extern "C-unwind" fn(function: *const c_char, file: *const c_char, line: u32, text: *const c_char) -> !;

const MAKE_STRING: &CStr = c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_";
const DESTROY_STRING: &CStr = c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev";
/// The constructor of whole objects, and that of bases, which is the same.
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

/// All that throwing `c10::OutOfMemoryError` takes.
#[derive(Clone, Copy)]
struct Thrower {
    allocate_exception: AllocateException,
    throw: Throw,
    make_string: MakeString,
    destroy_string: DestroyString,
    make_error: MakeError,
    type_info: *mut c_void,
    /// The first virtual function: two words into the table, behind the offset and the type.
    functions: *mut *mut c_void,
}

impl Thrower {
    fn find(symbols: &Symbols) -> Option<Self> {
        // SAFETY: the C++ ABI says what has this name.
        let allocate_exception = unsafe { symbols.function(c"__cxa_allocate_exception") };
        // SAFETY: the C++ ABI says what has this name.
        let throw = unsafe { symbols.function(c"__cxa_throw") };
        // SAFETY: the name holds class and arguments.
        let make_string = unsafe { symbols.function(MAKE_STRING) };
        // SAFETY: the name holds class and arguments.
        let destroy_string = unsafe { symbols.function(DESTROY_STRING) };
        let make_error = MAKE_ERROR
            .iter()
            // SAFETY: the name holds class and arguments.
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
        // SAFETY: the room begins with the address of the table, as every object with virtual functions does.
        unsafe { exception.cast::<*mut *mut c_void>().write(self.functions) };
        // SAFETY: the table of a class that can be thrown begins with its destructor.
        let destroy = unsafe { self.functions.read() };
        // SAFETY: the exception is whole, of this type, and destroyed by this function.
        unsafe { (self.throw)(exception, self.type_info, destroy) }
    }

    /// Makes a `c10::Error` with `text` in the room of an exception.
    fn make(self, text: &CStr) -> *mut c_void {
        let mut string = StdString::uninit();
        // `std::allocator` has no member; its address is never looked behind.
        let allocator = 0;
        // SAFETY: the room is large enough for a string, and the text ends with a zero.
        unsafe { (self.make_string)(&raw mut string, text.as_ptr(), &raw const allocator) };
        // SAFETY: any size may be asked for; without memory the C++ runtime ends the process.
        let exception = unsafe { (self.allocate_exception)(ROOM) };
        // SAFETY: the room is large enough for an error, and the string is whole.
        unsafe { (self.make_error)(exception, HERE, &raw mut string) };
        // SAFETY: the string is whole, be it moved from or not, and destroyed once.
        unsafe { (self.destroy_string)(&raw mut string) };
        exception
    }
}

/// Throws `c10::Error`, if there is one.
fn throw_plainly(symbols: &Symbols, text: &CStr) {
    // SAFETY: the name holds the arguments.
    let found = unsafe { symbols.function::<CheckFail>(CHECK_FAIL) };
    if let Some(check_fail) = found {
        // SAFETY: all three texts end with a zero, and it copies them.
        unsafe { check_fail(HERE.function, HERE.file, HERE.line, text.as_ptr()) }
    }
}

/// Throws `std::runtime_error`, if there is a C++ runtime.
fn throw_standard(symbols: &Symbols, text: &CStr) {
    // SAFETY: the name holds the arguments.
    let found = unsafe { symbols.function::<ThrowStandard>(THROW_STANDARD) };
    if let Some(throw) = found {
        // SAFETY: the text ends with a zero, and it copies it.
        unsafe { throw(text.as_ptr()) }
    }
}
