//! Content that shows where it came from.

use cachette::hal::{Device, DevicePtr, StreamRef};

/// Bytes that no other seed gives.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn whole(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it fits the host")
}

/// Writes the pattern of a seed, and waits until it is there.
pub(crate) fn put(device: &impl Device, at: u64, bytes: u64, seed: u64) {
    let content = pattern(seed, whole(bytes));
    let at = DevicePtr::new(at).expect("there is memory");
    let transfer = device.transfer().expect("the device copies");
    // SAFETY: 1. the default stream is always there. 3. the memory is live. 4. `content` stays until the device has
    // been waited for.
    unsafe { transfer.upload(at, content.as_ptr(), content.len(), StreamRef::DEFAULT) }.expect("an upload is queued");
    device.synchronize_device().expect("the device runs dry");
}

/// Whether memory holds the pattern of a seed.
pub(crate) fn holds(device: &impl Device, at: u64, bytes: u64, seed: u64) -> bool {
    let mut read = vec![0; whole(bytes)];
    let at = DevicePtr::new(at).expect("there is memory");
    let transfer = device.transfer().expect("the device copies");
    // SAFETY: 1. the default stream is always there. 3. the memory is live. 4. `read` is touched after the device has
    // been waited for.
    unsafe { transfer.download(read.as_mut_ptr(), at, read.len(), StreamRef::DEFAULT) }.expect("a download is queued");
    device.synchronize_device().expect("the device runs dry");
    read == pattern(seed, read.len())
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |digits| {
        let digits = std::str::from_utf8(digits).expect("it is text");
        u8::from_str_radix(digits, 16).expect("it is a number")
    };
    digits.map(byte).collect()
}
