//! Rows of methods that call the device, or its group in the brackets, with a check before or a note after.

/// Defines methods that need no check: `fn name(arguments) -> output;`.
macro_rules! passes {
    ($group:tt $(fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                cachette_hal::forward_target!(self.device, $group).$name($($argument),*)
            }
        )*
    };
}

/// Defines methods that use handles and memory: `fn name(arguments) -> output: call, check(argument), …;`.
macro_rules! uses {
    ($group:tt $(
        fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty: $call:ident $(, $check:ident($($checked:expr),*))*;
    )*) => {
        $(
            unsafe fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                let target = cachette_hal::forward_target!(self.device, $group);
                $(self.$check(Call::$call, $($checked),*)?;)*
                // SAFETY: 1 and 3. Checked above. The other promises are the caller's.
                unsafe { target.$name($($argument),*) }
            }
        )*
    };
}

/// Defines methods that create a resource: `fn name(arguments) -> output as made: call, resource, number, bytes;`.
macro_rules! creates {
    ($group:tt $(
        fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty as $made:ident:
            $call:ident, $resource:ident, $number:expr, $bytes:expr;
    )*) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                let $made = cachette_hal::forward_target!(self.device, $group).$name($($argument),*)?;
                self.watch.note(Call::$call, Resource::$resource, $number, $bytes);
                Ok($made)
            }
        )*
    };
}

/// Defines methods that end a resource: `fn name(arguments): call, resource, number, check(argument), …;`.
macro_rules! ends {
    ($group:tt $(
        fn $name:ident($($argument:ident: $type:ty),*):
            $call:ident, $resource:ident, $number:expr $(, $check:ident($($checked:expr),*))*;
    )*) => {
        $(
            unsafe fn $name(&self $(, $argument: $type)*) -> Result<()> {
                let target = cachette_hal::forward_target!(self.device, $group);
                $(self.$check(Call::$call, $($checked),*)?;)*
                let key = (Resource::$resource, $number);
                // SAFETY: 1. The ledger lists the resource as live. The other promises are the caller's.
                self.watch.end(Call::$call, key, || unsafe { target.$name($($argument),*) })
            }
        )*
    };
}

pub(super) use {creates, ends, passes, uses};
