//! The methods that wrappers of a device forward to their field `device` in the same way.

/// Defines the methods of `Device` that are not driver calls: the facts, and the accessors of the groups.
///
/// The wrapper itself implements every group. It has a group if its device does.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_groups {
    () => {
        fn info(&self) -> &$crate::DeviceInfo {
            self.device.info()
        }

        fn host_available(&self) -> Option<u64> {
            self.device.host_available()
        }

        fn while_current(&self, act: &mut dyn FnMut()) -> $crate::Result<()> {
            self.device.while_current(act)
        }

        $crate::group_accessors!(forward_groups);
    };
    ($wrapper:expr, $accessor:ident, $group:ident) => {
        $wrapper.device.$accessor().map(|_| $wrapper as _)
    };
}

/// Defines the methods of `VirtualMemory` that are not driver calls.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_virtual_memory_facts {
    () => {
        $crate::forward_virtual_memory_facts! {
            shares(sharing: $crate::Sharing),
            aliases(),
            frees_under_reservation(),
            mixes_sizes(),
            maps_without_wait(),
        }
    };
    ($($fact:ident($($argument:ident: $type:ty)?),)*) => {
        /// One byte if the device has no virtual memory; nothing can be reserved then.
        fn granularity(&self) -> $crate::Granularity {
            let none = $crate::Granularity { minimum: 1, recommended: 1 };
            self.device.virtual_memory().map_or(none, $crate::VirtualMemory::granularity)
        }

        $(
            fn $fact(&self $(, $argument: $type)?) -> $crate::Result<(), $crate::Reason> {
                self.device.virtual_memory().map_err(|missing| missing.reason)?.$fact($($argument)?)
            }
        )*
    };
}

/// The device of a wrapper for `[]`, or the device's group in the brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_target {
    ($device:expr, []) => {
        &$device
    };
    ($device:expr, [$group:ident]) => {
        $device.$group()?
    };
}
