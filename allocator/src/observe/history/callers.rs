//! Captures the call stack of a Rust program.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

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
    names: Mutex<HashMap<usize, Vec<Frame>>>,
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

    fn frames_of(&self, stack: RawStack) -> Vec<Frame> {
        let addresses = self.known.lock().stacks.get(stack.0.get() as usize - 1).cloned();
        let mut names = self.names.lock();
        let mut known = |address: &usize| names.entry(*address).or_insert_with(|| symbolise(*address)).clone();
        addresses.iter().flat_map(|all| all.iter()).flat_map(&mut known).skip_while(is_own).collect()
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
        stacks.iter().map(|stack| ResolvedStack { frames: self.frames_of(*stack), forward: Vec::new() }).collect()
    }
}

/// Returns the frames of an address, innermost first. Returns one frame with the address if no symbol is found.
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
        frames.push(Frame { name: format!("{address:#x}"), ..Frame::default() });
    }
    frames
}

/// Returns whether a function belongs to the allocator, or is called by it on the way to the capture.
///
/// A program with line tables alone names inlined functions without their module, so their file counts too.
fn is_own(frame: &Frame) -> bool {
    const NAMES: [&str; 5] =
        ["cachette::", "backtrace::", "core::ptr::drop_in_place<", "core::ptr::drop_glue<", "core::mem::drop"];
    const FILES: [&str; 3] = ["/backtrace-0.", "/library/core/src/ptr/", "/library/core/src/mem/"];
    let bare = frame.name.trim_start_matches('<');
    let in_source = || SOURCE.as_ref().is_some_and(|folder| frame.file.starts_with(folder));
    NAMES.iter().any(|own| bare.starts_with(own)) || FILES.iter().any(|own| frame.file.contains(own)) || in_source()
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

    fn named(name: &str, file: &str) -> Frame {
        Frame { name: name.to_owned(), file: file.to_owned(), line: 1 }
    }
}
