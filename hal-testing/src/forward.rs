//! The methods that both wrappers forward to the field `device` in the same way.

/// Defines the methods of `Device` that are not driver calls: the facts, and the accessors of the groups.
///
/// The wrapper itself implements every group. It has a group if its device does.
macro_rules! forward_groups {
    () => {
        fn info(&self) -> &cachette_hal::DeviceInfo {
            self.device.info()
        }

        cachette_hal::group_accessors!(forward_groups);
    };
    ($wrapper:expr, $accessor:ident, $group:ident) => {
        $wrapper.device.$accessor().map(|_| $wrapper as _)
    };
}
pub(crate) use forward_groups;

/// Defines the methods of `VirtualMemory` that are not driver calls.
macro_rules! forward_virtual_memory_facts {
    () => {
        $crate::forward::forward_virtual_memory_facts! {
            shares(sharing: cachette_hal::Sharing),
            aliases(),
            frees_under_reservation(),
            mixes_sizes(),
            maps_without_wait(),
        }
    };
    ($($fact:ident($($argument:ident: $type:ty)?),)*) => {
        /// One byte if the device has no virtual memory; nothing can be reserved then.
        fn granularity(&self) -> cachette_hal::Granularity {
            let none = cachette_hal::Granularity { minimum: 1, recommended: 1 };
            self.device.virtual_memory().map_or(none, cachette_hal::VirtualMemory::granularity)
        }

        $(
            fn $fact(&self $(, $argument: $type)?) -> cachette_hal::Result<(), cachette_hal::Reason> {
                self.device.virtual_memory().map_err(|missing| missing.reason)?.$fact($($argument)?)
            }
        )*
    };
}
pub(crate) use forward_virtual_memory_facts;
