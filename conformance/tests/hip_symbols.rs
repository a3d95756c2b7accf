//! A library that lacks a function lacks one feature, and says which function it is.

use std::fs;

use cachette_emulated_hip::{Personality, install};
use cachette_hal::{CaptureNode, Device, ErrorKind, Feature, LoadError, Ordinal, Reason};
use cachette_hal_hip::{Candidate, HipBackend};
use tempfile::NamedTempFile;

/// The functions of each group.
const GROUPS: &[(Feature, &[&str])] = &[
    (
        Feature::VirtualMemory,
        &[
            "hipMemGetAllocationGranularity",
            "hipMemAddressReserve",
            "hipMemAddressFree",
            "hipMemCreate",
            "hipMemRelease",
            "hipMemMap",
            "hipMemUnmap",
            "hipMemSetAccess",
            "hipMemExportToShareableHandle",
            "hipMemImportFromShareableHandle",
        ],
    ),
    (
        Feature::StreamOrdered,
        &[
            "hipMallocFromPoolAsync",
            "hipFreeAsync",
            "hipDeviceGetDefaultMemPool",
            "hipMemPoolTrimTo",
            "hipPointerGetAttributes",
        ],
    ),
    (
        Feature::HostMemory,
        &["hipHostMalloc", "hipHostFree", "hipHostRegister", "hipHostUnregister", "hipHostGetDevicePointer"],
    ),
    (Feature::Ipc, &["hipIpcGetMemHandle", "hipIpcOpenMemHandle", "hipIpcCloseMemHandle"]),
    (
        Feature::Capture,
        &[
            "hipStreamGetCaptureInfo_v2",
            "hipStreamBeginCapture",
            "hipStreamEndCapture",
            "hipGraphInstantiateWithFlags",
            "hipGraphDestroy",
            "hipGraphLaunch",
            "hipGraphExecDestroy",
            "hipThreadExchangeStreamCaptureMode",
        ],
    ),
    (Feature::PeerAccess, &["hipDeviceCanAccessPeer", "hipDeviceEnablePeerAccess", "hipDeviceDisablePeerAccess"]),
    (Feature::Transfer, &["hipMemsetAsync", "hipMemcpyDtoDAsync", "hipMemcpyHtoDAsync", "hipMemcpyDtoHAsync"]),
    (Feature::HostCalls, &["hipLaunchHostFunc"]),
];

/// Functions that every library must have.
const REQUIRED: &[&str] = &[
    "hipRuntimeGetVersion",
    "hipInit",
    "hipSetDevice",
    "hipGetLastError",
    "hipGetDevicePropertiesR0600",
    "hipMalloc",
    "hipEventQuery",
];

/// A copy of the emulated library in which a symbol has another name; it goes with its guard.
struct Without(NamedTempFile);

impl Without {
    fn new(symbol: &str) -> Self {
        let library = install(Personality::V7_2).expect("the library was built");
        let mut content = fs::read(&library).expect("it can be read");
        let name = [b"\0", symbol.as_bytes(), b"\0"].concat();
        // The first is the one that a loader looks at; names for debuggers come later.
        let found = content.windows(name.len()).position(|part| part == name);
        let found = found.expect("it is exported in the first place");
        content[found + 1] = b'x';
        let folder = library.parent().expect("it lies in a folder");
        let file = NamedTempFile::new_in(folder).expect("there is room for a copy");
        fs::write(&file, content).expect("there is room for a copy");
        Self(file)
    }

    fn load(&self) -> Result<HipBackend, LoadError> {
        // SAFETY: the emulated library keeps to AMD's C interface.
        unsafe { HipBackend::load_from(&[Candidate::Path(self.0.path().to_owned())]) }
    }
}

#[test]
fn without_dependencies_of_nodes_all_else_can_be_captured() {
    let symbol = "hipGraphNodeGetDependencies";
    let device = Without::new(symbol).load().unwrap();
    let device = device.device(Ordinal(0)).unwrap();
    assert!(device.missing(Feature::Capture).is_none());
    let capture = device.capture().unwrap();
    // SAFETY: 1. the function that would look at the node is not there.
    let asked = unsafe { capture.dependencies(CaptureNode::from_raw(1), &mut Vec::new()) };
    let error = asked.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(symbol), "{error}");
}

#[test]
fn a_function_that_is_missing_takes_its_feature_along() {
    for (feature, symbols) in GROUPS {
        for symbol in *symbols {
            let device = Without::new(symbol).load().unwrap().device(Ordinal(0)).unwrap();
            let missing = device.missing(*feature).unwrap();
            assert_eq!(missing.reason, Reason::NoSymbol(symbol));
            assert_eq!(cachette_hal::Error::from(missing).kind(), ErrorKind::Unsupported);
            for other in Feature::ALL.into_iter().filter(|other| other != feature) {
                // Without transfers the pool cannot be tested.
                let untested = *feature == Feature::Transfer && other == Feature::StreamOrdered;
                let missing = device.missing(other);
                assert_eq!(missing.is_some(), untested, "without {symbol}: {missing:?}");
            }
        }
    }
}

#[test]
fn without_ranges_of_addresses_there_is_neither_virtual_memory_nor_tokens() {
    let symbol = "hipMemGetAddressRange";
    let device = Without::new(symbol).load().unwrap().device(Ordinal(0)).unwrap();
    for feature in Feature::ALL {
        let needs = [Feature::VirtualMemory, Feature::Ipc].contains(&feature);
        let missing = device.missing(feature).map(|missing| missing.reason);
        assert_eq!(missing, needs.then_some(Reason::NoSymbol(symbol)), "{feature}");
    }
}

#[test]
fn a_function_that_is_required_is_named() {
    for symbol in REQUIRED {
        match Without::new(symbol).load() {
            Err(LoadError::SymbolsMissing { symbols, .. }) => assert_eq!(symbols, [*symbol]),
            other => panic!("without {symbol}: {other:?}"),
        }
    }
}
