//! The calls of the contract, as values.

use std::fmt;

/// Declares [`Call`] from the list of method names.
macro_rules! calls {
    ($($variant:ident = $name:literal,)*) => {
        /// One kind of call that reaches the driver, named after its method.
        ///
        /// `traced::Traced` reports them; the host device counts them and fails them on demand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Call {
            $(
                #[doc = concat!("`", $name, "`.")]
                $variant,
            )*
        }

        impl Call {
            /// Every call, in order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The method's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

calls! {
    MemoryInfo = "memory_info",
    Allocate = "allocate",
    Free = "free",
    CreateStream = "create_stream",
    DestroyStream = "destroy_stream",
    Synchronize = "synchronize",
    SynchronizeDevice = "synchronize_device",
    CreateEvent = "create_event",
    DestroyEvent = "destroy_event",
    Record = "record",
    Poll = "poll",
    Wait = "wait",
    StreamWait = "stream_wait",
    Reserve = "reserve",
    Release = "release",
    CreateBacking = "create_backing",
    DestroyBacking = "destroy_backing",
    Map = "map",
    Unmap = "unmap",
    SetAccess = "set_access",
    ExportBacking = "export_backing",
    ImportBacking = "import_backing",
    ExportFabric = "export_fabric",
    ImportFabric = "import_fabric",
    AllocateOn = "allocate_on",
    FreeOn = "free_on",
    Trim = "trim",
    AllocatePinned = "allocate_pinned",
    FreePinned = "free_pinned",
    Register = "register",
    Unregister = "unregister",
    DeviceAddress = "device_address",
    ExportToken = "export_token",
    OpenToken = "open_token",
    CloseToken = "close_token",
    CaptureStatus = "capture_status",
    Frontier = "frontier",
    Dependencies = "dependencies",
    BeginCapture = "begin_capture",
    EndCapture = "end_capture",
    Launch = "launch",
    DestroyGraph = "destroy_graph",
    ExchangeCaptureMode = "exchange_capture_mode",
    CanReach = "can_reach",
    EnablePeer = "enable_peer",
    DisablePeer = "disable_peer",
    Fill = "fill",
    Copy = "copy",
    Upload = "upload",
    Download = "download",
    CallHost = "call_host",
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
