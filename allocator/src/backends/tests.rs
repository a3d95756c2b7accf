//! The names that the backends accept, and the error for each mistake.

use cachette_hal::{BackendInfo, ErrorKind, Result as HalResult, Vendor, Version};

use super::*;

/// A driver that loads and then shows `count` devices, none of which opens.
#[derive(Debug)]
struct Stubborn {
    info: BackendInfo,
    count: HalResult<u32>,
}

impl Stubborn {
    fn new(count: HalResult<u32>) -> Self {
        let info = BackendInfo::new("cuda", Vendor::Nvidia, Version::new(12, 4), "libstubborn.so".to_owned(), true);
        Self { info, count }
    }
}

impl Backend for Stubborn {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn device_count(&self) -> HalResult<u32> {
        self.count
    }

    fn open(&self, _: Ordinal) -> HalResult<AnyDevice> {
        Err(LOST)
    }
}

const LOST: Error = Error::new(ErrorKind::DeviceLost, "open");

fn found(name: &'static str, backend: Stubborn) -> Found {
    Found { name, backend: Ok(Arc::new(backend)) }
}

#[test]
fn every_backend_is_listed_once_whether_compiled_in_or_not() {
    let names: Vec<_> = Backends::available().iter().map(|found| found.name).collect();
    assert_eq!(names, ["cuda", "hip", "host"]);
    assert!(Backends::names().eq(names));
}

#[cfg(not(any(feature = "cuda", feature = "hip")))]
#[test]
fn a_backend_that_is_not_compiled_in_names_its_feature() {
    for name in ["cuda", "hip"] {
        let expected = format!("the backend '{name}' is not compiled in; compile with the feature `{name}`");
        assert_eq!(Backends::load(name).unwrap_err().to_string(), expected);
        assert_eq!(Backends::open(name).unwrap_err().to_string(), expected);
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    for target in ["vulkan", "vulkan:0", "vulkan:x", "", ":0", "Host", " host"] {
        let name = target.split(':').next().unwrap();
        assert_eq!(
            Backends::open(target).unwrap_err().to_string(),
            format!("there is no backend named '{name}'; choose one of cuda, hip, host")
        );
    }
}

#[test]
fn a_bad_device_number_is_answered_with_how_to_write_one() {
    for number in ["", "x", "-1", " 1", "1:2", "0x1", "4294967296"] {
        assert_eq!(
            Backends::open(&format!("host:{number}")).unwrap_err().to_string(),
            format!("'{number}' is not a device number; write a whole number from 0 up, as in 'host:0'")
        );
    }
}

#[test]
fn an_ordinal_beyond_the_last_is_refused_with_the_count() {
    let text = |count, ordinal| Backends::open_on(&Stubborn::new(Ok(count)), Ordinal(ordinal)).unwrap_err().to_string();
    assert_eq!(text(0, 0), "there is no device cuda:0; it shows no device");
    assert_eq!(text(1, 1), "there is no device cuda:1; it has 1 device, number 0");
    assert_eq!(text(4, 9), "there is no device cuda:9; it has 4 devices, numbers 0 to 3");
}

#[test]
fn a_driver_that_fails_keeps_its_own_error() {
    let expected = OpenError::Driver { backend: "cuda", error: LOST };
    for count in [Ok(1), Err(LOST)] {
        let opened = Backends::open_on(&Stubborn::new(count), Ordinal(0));
        assert_eq!(opened.unwrap_err(), expected);
    }
}

#[test]
fn where_nothing_answers_every_reason_is_listed() {
    let all = vec![
        found("cuda", Stubborn::new(Ok(0))),
        Found { name: "hip", backend: Err(OpenError::NotCompiled { backend: "hip" }) },
        found("host", Stubborn::new(Err(LOST))),
    ];
    assert_eq!(
        first_of(all).unwrap_err().to_string(),
        "no backend has a device: there is no device cuda:0; it shows no device; the backend 'hip' is not \
         compiled in; compile with the feature `hip`; the backend 'cuda' failed: open failed: the device \
         is lost; stop using the device"
    );
}

#[cfg(feature = "host")]
#[test]
fn the_host_is_opened_by_name_by_number_and_without_a_gpu() {
    for device in [
        Backends::open("host"),
        Backends::open("host:0"),
        first_of(vec![found("cuda", Stubborn::new(Ok(1))), Found { name: "host", backend: host() }]),
    ] {
        let device = device.unwrap();
        assert_eq!(device.info().vendor, Vendor::Host);
        assert_eq!(device.info().ordinal, Ordinal(0));
    }
}

#[cfg(feature = "host")]
#[test]
fn the_host_has_the_memory_of_the_machine_or_of_the_environment() {
    let total = |capacity: Option<&str>| {
        let backend = Backends::host(host_config(capacity.map(OsString::from))?)?;
        Ok::<_, OpenError>(Backends::open_on(&*backend, Ordinal(0))?.info().total_memory)
    };
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = machine.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(total(None), Ok(kib << 10));
    assert_eq!(total(Some("3GiB")), Ok(3 << 30));
    for text in ["much", "8", "0"] {
        let expected =
            format!("CACHETTE_HOST_CAPACITY is '{text}', which is not a size with a unit; write one such as 8GiB");
        assert_eq!(total(Some(text)).unwrap_err().to_string(), expected);
    }
}

#[cfg(feature = "host")]
#[test]
fn the_first_device_is_opened_by_the_one_call() {
    assert!(Backends::open_first().unwrap().memory_info().is_ok());
}

#[cfg(feature = "host")]
#[test]
fn an_impossible_host_is_refused_with_what_is_allowed() {
    let error = Backends::host(HostConfig::default().devices(0)).unwrap_err();
    assert!(matches!(error, OpenError::HostConfig(_)), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("no such host device can be made: 0 devices "), "{text}");
}
