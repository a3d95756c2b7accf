//! Statistics in Prometheus' text format.

use std::collections::BTreeMap;

use cachette::Metrics;

use crate::fixture::{MIB, TestAllocator};

/// The samples of a page, by name and labels; panics at a line that the format does not allow.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut typed) = (BTreeMap::new(), Vec::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (kind, name) = (words.next().expect("the line is whole"), words.next().expect("the line is whole"));
            match kind {
                "HELP" => assert!(!words.next().expect("the line is whole").is_empty()),
                "TYPE" => {
                    assert!(["gauge", "counter"].contains(&words.next().expect("the line is whole")));
                    assert!(!typed.contains(&name.to_owned()), "{name} twice");
                    typed.push(name.to_owned());
                }
                other => panic!("{other}"),
            }
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect("a name and a value");
        let name = sample.split('{').next().expect("the line is whole");
        assert_eq!(typed.last().map(String::as_str), Some(name), "untyped");
        let value = value.replace("+Inf", "inf").parse().expect("a number");
        assert!(samples.insert(sample.to_owned(), value).is_none(), "{sample} twice");
    }
    samples
}

#[test]
fn t7_every_figure_is_on_the_page_with_its_type_and_device() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "memory_limit:60M").with_streams();
    let memory = test.allocate(1000, &stream);
    drop(test.allocate(12 * MIB, &stream));
    assert!(test.allocator.allocate(70 * MIB, &stream).is_err());
    let page = test.allocator.metrics().to_string();
    let samples = samples(&page);
    assert!(samples.keys().all(|name| name.contains("{device=\"0\"")));
    assert!(samples.keys().all(|name| name.starts_with("cachette_")));
    let mib = 1_048_576.0;
    for (name, value) in [
        ("cachette_allocated_bytes{device=\"0\",backend=\"host\",kind=\"all\"}", 1024.0),
        ("cachette_requested_bytes{device=\"0\",backend=\"host\",kind=\"small\"}", 1000.0),
        ("cachette_reserved_bytes{device=\"0\",backend=\"host\",kind=\"large\"}", 0.0),
        ("cachette_reserved_bytes_peak{device=\"0\",backend=\"host\",kind=\"large\"}", 12.0 * mib),
        ("cachette_reserved_bytes{device=\"0\",backend=\"host\",kind=\"all\"}", 2.0 * mib),
        ("cachette_allocated_total{device=\"0\",backend=\"host\"}", 2.0),
        ("cachette_freed_total{device=\"0\",backend=\"host\"}", 1.0),
        ("cachette_out_of_memory_total{device=\"0\",backend=\"host\"}", 1.0),
        ("cachette_limit_bytes{device=\"0\",backend=\"host\"}", 60.0 * mib),
        ("cachette_device_memory_bytes{device=\"0\",backend=\"host\"}", 64.0 * mib),
        ("cachette_segments{device=\"0\",backend=\"host\",kind=\"all\"}", 1.0),
        ("cachette_elastic_segments{device=\"0\",backend=\"host\"}", 0.0),
        (
            concat!("cachette_build_info{device=\"0\",backend=\"host\",version=\"", env!("CARGO_PKG_VERSION"), "\"}"),
            1.0,
        ),
        ("cachette_device_free_bytes{device=\"0\",backend=\"host\"}", 62.0 * mib),
    ] {
        let found = samples.get(name).unwrap_or_else(|| panic!("{name}:\n{page}"));
        assert!((found - value).abs() < 0.5, "{name} is {found}");
    }
    drop(memory);
}

#[test]
fn elastic_segments_and_their_chunks_are_counted() {
    let (test, [one, two]) = TestAllocator::elastic("").with_streams();
    let memory = [test.allocate(MIB, &one), test.allocate(3 * MIB, &two)];
    let page = test.allocator.metrics().to_string();
    let value = |name: &str| samples(&page)[&format!("{name}{{device=\"0\",backend=\"host\"}}")];
    assert!(value("cachette_elastic_segments") >= 2.0, "{page}");
    assert!(value("cachette_chunks") >= 2.0, "{page}");
    drop(memory);
}

#[test]
fn the_page_of_several_allocators_has_each_figure_once() {
    let all = [TestAllocator::new(), TestAllocator::new()].map(|test| test.allocator.metrics());
    let mut page = String::new();
    let mut other = all[1].clone();
    other.device = cachette::hal::Ordinal(1);
    Metrics::write_all(&[all[0].clone(), other], &mut page, &[]).unwrap();
    let samples = samples(&page);
    for device in ["0", "1"] {
        assert!(samples.contains_key(&format!("cachette_chunks{{device=\"{device}\",backend=\"host\"}}")), "{page}");
    }
}

#[test]
fn labels_are_added_and_escaped() {
    let test = TestAllocator::new();
    let mut page = String::new();
    let labels = [("job", "a \"quoted\" \\ word"), ("rank", "1\n2")];
    test.allocator.metrics().write_prometheus(&mut page, &labels).unwrap();
    let wanted = r#"cachette_limit_bytes{device="0",backend="host",job="a \"quoted\" \\ word",rank="1\n2"} +Inf"#;
    assert!(page.lines().any(|line| line == wanted), "{page}");
}

#[test]
fn d11_a_device_without_memory_info_has_no_such_figures() {
    let test = TestAllocator::new();
    let (call, kind) = (cachette::hal::Call::MemoryInfo, cachette::hal::ErrorKind::Unsupported);
    test.device.fail_next(call, 1, kind);
    let page = test.allocator.metrics().to_string();
    assert!(!page.contains("device_free_bytes"), "{page}");
    assert!(page.contains("cachette_reserved_bytes"));
}
