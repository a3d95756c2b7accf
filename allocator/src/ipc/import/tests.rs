use cachette_hal::{Ordinal, Vendor};
use cachette_hal_host::{HostBackend, HostConfig};

use super::*;
use crate::Allocator;

fn device(vendor: Vendor, uuid: u8) -> DeviceInfo {
    let mut info = DeviceInfo::new(Ordinal(0), vendor, "one".to_owned(), 1 << 30, 512);
    info.uuid = [uuid; 16];
    info
}

#[test]
fn another_device_is_rejected_if_both_have_a_uuid() {
    let check = |vendor, uuid| check_device(device_tag(&device(Vendor::Host, 7)), &device(vendor, uuid));
    assert_eq!(check(Vendor::Host, 7), Ok(()));
    assert_eq!(check(Vendor::Host, 0), Ok(()));
    assert_eq!(check(Vendor::Host, 8), Err(IpcError::OtherDevice));
    let here = Vendor::Amd;
    assert_eq!(check(here, 7), Err(IpcError::OtherVendor { here }));
}

#[test]
fn each_vendor_has_its_own_letter() {
    let letters = [Vendor::Host, Vendor::Nvidia, Vendor::Amd].map(|vendor| device_tag(&device(vendor, 7)).vendor);
    assert_eq!(letters, *b"hna");
}

#[test]
fn entries_of_closed_memory_do_not_pile_up() {
    const OPEN: u8 = 20;
    let device = HostBackend::new(HostConfig::default()).unwrap().device(Ordinal(0)).unwrap();
    let stream = Allocator::new(device).create_stream().unwrap();
    let state = &stream.heap.stream_state.shared;
    let mut table = ImportTable { opened: HashMap::new(), segments: HashMap::new(), most: 0 };
    let unclosed = Arc::new(Unclosed(Mutex::default()));
    let open = |_| {
        let (state, unclosed) = (Arc::clone(state), Arc::clone(&unclosed));
        Arc::new(OpenMemory { state, address: 1, bytes: 1, lease: None, unclosed })
    };
    let kept: Vec<_> = (0..OPEN).map(open).collect();
    table.opened.extend((0..OPEN).zip(&kept).map(|(handle, opened)| (vec![handle], Arc::downgrade(opened))));
    let mut most = 0;
    for closed in 0..1000_u32 {
        let mut token = [0; 64];
        token[..4].copy_from_slice(&closed.to_le_bytes());
        table.opened.insert(token.to_vec(), Weak::new());
        table.segments.insert(IpcToken(token), Weak::new());
        assert!(table.find(b"another handle").is_none());
        most = most.max(table.opened.len() + table.segments.len());
    }
    assert_eq!(most, 38, "they go when they are as many as the others");
    assert!((0..OPEN).all(|handle| table.find(&[handle]).is_some()), "what is open stays");
}
