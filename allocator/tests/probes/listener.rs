//! A tracing tool for the probes, inside the program that contains them.
//!
//! The listener does the kernel's part: it increments the semaphores and replaces each probe's `nop` by a breakpoint.
//! Both instructions have the same length, so the program continues after the breakpoint.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use crate::notes::{self, Note};

const BREAKPOINT: u8 = 0xcc;

/// Held by the only active [`Listener`]: all tests share the program.
static TURN: Mutex<()> = Mutex::new(());
/// The recorded probes. Only one thread allocates while a listener is active, so a signal handler never waits here.
static TOLD: Mutex<Vec<(&str, Vec<u64>)>> = Mutex::new(Vec::new());
static NOTES: OnceLock<Vec<Note>> = OnceLock::new();

/// Only the thread that holds the listener allocates and frees.
pub(crate) struct Listener {
    notes: &'static [Note],
    _turn: MutexGuard<'static, ()>,
}

impl Listener {
    pub(crate) fn begin() -> Self {
        static READY: Once = Once::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let notes = NOTES.get_or_init(notes::read);
        READY.call_once(|| attach(notes));
        told().clear();
        listen(notes, 1);
        Self { notes, _turn: turn }
    }

    /// Stops listening. Returns the recorded probes: names and arguments.
    pub(crate) fn end(&self) -> Vec<(&'static str, Vec<u64>)> {
        listen(self.notes, 0);
        mem::take(&mut *told())
    }
}

fn told() -> MutexGuard<'static, Vec<(&'static str, Vec<u64>)>> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the number of active tools.
fn listen(notes: &[Note], tools: u16) {
    for note in notes {
        let semaphore = ptr::with_exposed_provenance_mut(start() + note.semaphore);
        // SAFETY: the note says that this word is the probe's semaphore, which the program only reads.
        unsafe { AtomicU16::from_ptr(semaphore) }.store(tools, SeqCst);
    }
}

/// Sets the breakpoints.
fn attach(notes: &[Note]) {
    // SAFETY: all zero is a valid action: no flags, and an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_breakpoint as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler has the signature that the flag asks for, and the action lives through the call.
    let set = unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) };
    assert_eq!(set, 0);
    for note in notes {
        let location = start() + note.location;
        let page = ptr::with_exposed_provenance_mut(location & !0xfff);
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: the page is the program's own code, which stays readable and executable.
        let opened = unsafe { libc::mprotect(page, 0x1000, all) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the note says that this byte is an instruction of one byte, and it was just made writable.
        let code = unsafe { AtomicU8::from_ptr(ptr::with_exposed_provenance_mut(location)) };
        assert_eq!(code.swap(BREAKPOINT, SeqCst), 0x90, "{note:?}");
    }
}

/// Records a probe with its arguments.
///
/// The signal comes from a probe, so the thread is not inside another library, and the handler may allocate.
extern "C" fn on_breakpoint(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel gave a context that lives until the handler returns.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    let value = |register: i32| {
        let place = usize::try_from(register).expect("registers count from zero");
        registers[place].cast_unsigned()
    };
    let behind = value(libc::REG_RIP);
    let is_here = |note: &&Note| (start() + note.location + 1) as u64 == behind;
    let note = NOTES.get().into_iter().flatten().find(is_here);
    let note = note.expect("only this tool sets breakpoints");
    let arguments = note.arguments.iter().map(|text| value(register(text)));
    told().push((&note.name, arguments.collect()));
}

/// The register that an argument is in.
fn register(argument: &str) -> i32 {
    match argument {
        "-8@%rax" => libc::REG_RAX,
        "-8@%rbx" => libc::REG_RBX,
        "-8@%rcx" => libc::REG_RCX,
        "-8@%rdx" => libc::REG_RDX,
        "-8@%rsi" => libc::REG_RSI,
        "-8@%rdi" => libc::REG_RDI,
        "-8@%rbp" => libc::REG_RBP,
        "-8@%r8" => libc::REG_R8,
        "-8@%r9" => libc::REG_R9,
        "-8@%r10" => libc::REG_R10,
        "-8@%r11" => libc::REG_R11,
        "-8@%r12" => libc::REG_R12,
        "-8@%r13" => libc::REG_R13,
        "-8@%r14" => libc::REG_R14,
        "-8@%r15" => libc::REG_R15,
        _ => panic!("{argument} is no register"),
    }
}

/// Where the program is loaded.
fn start() -> usize {
    extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, start: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the loader gave it for the length of the call.
        let at = unsafe { (*info).dlpi_addr };
        // SAFETY: it is what the caller below handed over.
        unsafe { start.cast::<u64>().write(at) };
        1
    }
    let mut start = 0_u64;
    // SAFETY: the function ends the walk at the program itself, which comes first, and writes where it may.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut start).cast()) };
    usize::try_from(start).expect("addresses have the length of a word")
}
