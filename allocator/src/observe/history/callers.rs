//! Captures the call stack of a Rust program.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use crate::observe::history::object;
use crate::observe::history::stacks::{Frame, RawStack, ResolvedStack, StackSource};
use crate::sync::Mutex;

/// The most frames of a stack; outer ones are dropped.
const DEEPEST: usize = 64;

/// The call stacks of the program, innermost frame first, without the frames of the allocator.
///
/// A capture records addresses only. Names, files and lines are looked up on demand, as far as there are any.
#[derive(Debug, Default)]
pub struct Callers {
    /// One table, since the crate `backtrace` walks one stack at a time.
    known: Mutex<KnownStacks>,
    /// The frames of an address; several if calls were inlined.
    names: Mutex<HashMap<usize, Arc<[CallFrame]>>>,
}

/// A frame, and whether it belongs to the allocator.
#[derive(Clone, Debug)]
struct CallFrame {
    frame: Frame,
    is_own: bool,
}

/// Stacks by content, and by number minus one.
#[derive(Debug, Default)]
struct KnownStacks {
    numbers: HashMap<Arc<[usize]>, RawStack>,
    stacks: Vec<Arc<[usize]>>,
}

impl Callers {
    /// Returns the instance that all allocators of the process share.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: LazyLock<Arc<Callers>> = LazyLock::new(Arc::default);
        Arc::clone(&SHARED)
    }

    /// Returns the number of a stack. Equal stacks have equal numbers.
    fn number_of(&self, addresses: &[usize]) -> Option<RawStack> {
        let KnownStacks { numbers, stacks } = &mut *self.known.lock();
        if let Some(known) = numbers.get(addresses) {
            return Some(*known);
        }
        let number = u32::try_from(stacks.len() + 1).ok().and_then(NonZeroU32::new).map(RawStack)?;
        let stack: Arc<[usize]> = addresses.into();
        stacks.push(Arc::clone(&stack));
        numbers.insert(stack, number);
        Some(number)
    }

    /// Passes the frames of the callers to `wanted`, innermost first, and looks up as many as it reads.
    fn with_callers<T>(&self, stack: RawStack, wanted: impl FnOnce(&mut dyn Iterator<Item = Frame>) -> T) -> T {
        let addresses = self.known.lock().stacks.get(stack.0.get() as usize - 1).cloned();
        let mut names = self.names.lock();
        let known = |address: &usize| Arc::clone(names.entry(*address).or_insert_with(|| call_frames(*address)));
        let frames = addresses.iter().flat_map(|all| all.iter()).map(known);
        let frames = frames.flat_map(|frames| frames.to_vec()).skip_while(|call| call.is_own);
        wanted(&mut frames.map(|call| call.frame))
    }
}

impl StackSource for Callers {
    fn capture(&self) -> Option<RawStack> {
        let (mut addresses, mut depth) = ([0; DEEPEST], 0);
        backtrace::trace(|frame| {
            addresses[depth] = frame.ip().addr();
            depth += 1;
            depth < DEEPEST
        });
        self.number_of(&addresses[..depth])
    }

    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack> {
        let frames = |stack: &RawStack| self.with_callers(*stack, |frames| frames.collect());
        stacks.iter().map(|stack| ResolvedStack { frames: frames(stack), forward: Vec::new() }).collect()
    }

    fn resolve_sites(&self, stacks: &[RawStack]) -> Vec<Option<Frame>> {
        let site = |mut frames: &mut dyn Iterator<Item = Frame>| {
            let first = frames.next()?;
            if first.is_named() { Some(first) } else { Iterator::find(&mut frames, Frame::is_named).or(Some(first)) }
        };
        stacks.iter().map(|stack| self.with_callers(*stack, site)).collect()
    }
}

/// Returns the frames of an address, with whether each belongs to the allocator.
fn call_frames(address: usize) -> Arc<[CallFrame]> {
    let is_inside = object::is_own(address);
    let calls = symbolise(address).into_iter().map(|frame| {
        let is_own = is_own(&frame) || (is_inside && !is_of_program(&frame));
        CallFrame { frame, is_own }
    });
    calls.collect()
}

/// Returns the frames of an address, innermost first. A frame without a symbol has its place in the object file.
fn symbolise(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    // An address on a stack is a return address; the call itself lies before it.
    let call = std::ptr::without_provenance_mut(address.saturating_sub(1));
    backtrace::resolve(call, |symbol| {
        let name = symbol.name().map_or_else(String::new, |name| format!("{name:#}"));
        let file = symbol.filename().map_or_else(String::new, |file| file.display().to_string());
        frames.push(Frame { name, file, line: symbol.lineno().unwrap_or(0) });
    });
    if frames.is_empty() {
        frames.push(Frame::default());
    }
    for frame in frames.iter_mut().filter(|frame| frame.name.is_empty()) {
        frame.name = object::place(address);
    }
    frames
}

/// Returns whether a function belongs to the allocator, or is called by it on the way to the capture.
///
/// A program with line tables alone names inlined functions without their module, so their file counts too.
fn is_own(frame: &Frame) -> bool {
    const NAMES: [&str; 8] = [
        "cachette::",
        "cachette_c::",
        "cachette_front::",
        "cachette_process::",
        "backtrace::",
        "core::ptr::drop_in_place<",
        "core::ptr::drop_glue<",
        "core::mem::drop",
    ];
    const FILES: [&str; 3] = ["/backtrace-0.", "/library/core/src/ptr/", "/library/core/src/mem/"];
    let bare = frame.name.trim_start_matches('<');
    let in_source = || SOURCE.as_ref().is_some_and(|folder| frame.file.starts_with(folder));
    let in_library = || in_workspace(&frame.file).is_some_and(|path| LIBRARIES.iter().any(|own| path.starts_with(own)));
    NAMES.iter().any(|own| bare.starts_with(own))
        || FILES.iter().any(|own| frame.file.contains(own))
        || in_source()
        || in_library()
}

/// Returns whether a frame of the shared object that contains the allocator belongs to the program.
///
/// A plug-in in Rust can contain the allocator. Its line tables name files elsewhere. A frame without a file counts as
/// the allocator's, since a shipped library has no line tables.
fn is_of_program(frame: &Frame) -> bool {
    const DEPENDENCIES: [&str; 4] = ["/rustc/", "/library/", "/.cargo/", "/registry/src/"];
    let is_dependency = DEPENDENCIES.iter().any(|part| frame.file.contains(part));
    !frame.file.is_empty() && !is_dependency && in_workspace(&frame.file).is_none()
}

/// The sources of the libraries that contain the allocator.
const LIBRARIES: [&str; 3] = ["bindings/c/src/", "bindings/front/src/", "bindings/process/src/"];

/// Returns the path of a file below the folder of this workspace.
fn in_workspace(file: &str) -> Option<&str> {
    file.strip_prefix(SOURCE.as_ref()?.strip_suffix("allocator/src/")?)
}

/// The folder of the allocator's source, as the program's line tables name it.
static SOURCE: LazyLock<Option<String>> = LazyLock::new(|| {
    let mut folder = None;
    backtrace::trace(|frame| {
        let of_this_file = |frame: Frame| Some(frame.file.strip_suffix("observe/history/callers.rs")?.to_owned());
        folder = symbolise(frame.ip().addr()).into_iter().find_map(of_this_file);
        folder.is_none()
    });
    folder
});

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn captured(callers: &Callers) -> RawStack {
        callers.capture().unwrap()
    }

    #[test]
    fn one_place_has_one_number_and_two_have_two() {
        let callers = Callers::default();
        let same: Vec<_> = (0..3).map(|_| captured(&callers)).collect();
        assert!(same.iter().all(|stack| *stack == same[0]), "{same:?}");
        assert_ne!(captured(&callers), same[0]);
    }

    #[test]
    fn every_number_leads_back_to_its_stack() {
        let callers = Callers::default();
        let stacks: Vec<Vec<usize>> = (1..2000).map(|n| vec![n, n * 7, n + 3]).collect();
        let numbers: Vec<_> = stacks.iter().map(|stack| callers.number_of(stack).unwrap()).collect();
        for (stack, number) in stacks.iter().zip(&numbers) {
            let known = callers.known.lock();
            assert_eq!(*known.stacks[number.0.get() as usize - 1], stack[..]);
        }
        let largest = numbers.iter().map(|number| number.0.get()).max().unwrap();
        assert!(largest < 8000, "numbers up to {largest} for 2000 stacks");
        let unknown = RawStack(NonZeroU32::new(1 << 30).unwrap());
        assert_eq!(callers.resolve(&[unknown]), [ResolvedStack::default()]);
    }

    #[test]
    fn names_of_cpp_callers_are_demangled() {
        let name = backtrace::SymbolName::new(b"_ZN2at6native4randEl");
        assert_eq!(format!("{name:#}"), "at::native::rand(long)");
    }

    #[test]
    fn the_allocator_is_not_among_its_own_callers() {
        for name in [
            "cachette::allocator::Allocator<D>::allocate",
            "<cachette::allocation::Allocation<D> as core::ops::drop::Drop>::drop",
            "core::ptr::drop_in_place<cachette::allocation::Allocation<D>>",
            "core::mem::drop",
            "backtrace::backtrace::trace",
        ] {
            assert!(is_own(&named(name, "")), "{name}");
        }
        for name in ["trainer::step", "cachettes::f", "my::cachette::f", ""] {
            assert!(!is_own(&named(name, "/home/me/trainer/src/ptr/step.rs")), "{name}");
        }
    }

    #[test]
    fn inlined_functions_are_known_by_their_file() {
        let source = SOURCE.as_ref().expect("tests have line tables");
        for file in [&format!("{source}heap/fast_path.rs"), "/registry/backtrace-0.3.77/src/backtrace/mod.rs"] {
            assert!(is_own(&named("allocate", file)), "{file}");
        }
        for file in
            ["/home/me/trainer/src/main.rs", "/home/me/core/src/mem/arena.rs", "/home/me/backtrace-viewer/src/lib.rs"]
        {
            assert!(!is_own(&named("allocate", file)), "{file}");
        }
    }

    #[test]
    fn the_library_around_the_allocator_is_not_among_its_callers() {
        let source = SOURCE.as_ref().expect("tests have line tables");
        let bindings = source.replace("allocator/src/", "bindings/");
        for (name, file) in [
            ("allocate", "front/src/memory.rs"),
            ("cachette_allocate", "c/src/allocation.rs"),
            ("allocator", "process/src/state.rs"),
        ] {
            assert!(is_own(&named(name, &format!("{bindings}{file}"))), "{file}");
        }
        assert!(!is_own(&named("allocate", &format!("{bindings}front/tests/memory.rs"))));
        assert!(is_own(&named("cachette_front::memory::allocate", "")));
    }

    #[test]
    fn a_plug_in_keeps_its_own_functions() {
        assert!(is_of_program(&named("step", "/home/me/plugin/src/lib.rs")));
        let registry = "/home/me/.cargo/registry/src/index/pyo3-0.29.0/src/lib.rs";
        for (name, file) in [("libcachette.so.0+0x1f", ""), ("cuMemAlloc_v2", ""), ("call", registry)] {
            assert!(!is_of_program(&named(name, file)), "{name}");
        }
    }

    fn named(name: &str, file: &str) -> Frame {
        Frame { name: name.to_owned(), file: file.to_owned(), line: 1 }
    }
}
