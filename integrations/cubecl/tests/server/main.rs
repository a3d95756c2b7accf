//! A client of cubecl whose server has its memory from Cachette, on host memory: contents are checked.

mod kernel;
mod server;

use cubecl_server::client::Client;
use cubecl_server::server::{CubeCount, KernelArguments};

use kernel::Add;
use server::{HostServer, cache};

fn client() -> Client {
    Client::load::<HostServer>(server::DEVICE)
}

fn numbers(len: u32, step: u32) -> Vec<u8> {
    (0..len).flat_map(|index| (index * step).to_ne_bytes()).collect()
}

#[test]
fn what_is_written_is_read() {
    let client = client();
    let handles: Vec<_> = (1..20).map(|step| client.create_from_slice(&numbers(1000 * step, step))).collect();
    for (handle, step) in handles.into_iter().zip(1..) {
        assert_eq!(client.read_one(handle).unwrap().to_vec(), numbers(1000 * step, step));
    }
}

#[test]
fn kernels_run_on_memory_of_the_cache_through_reuse() {
    let client = client();
    let len = 50_000;
    let (mut sum, one) = (client.create_from_slice(&numbers(len, 1)), client.create_from_slice(&numbers(len, 3)));
    for _ in 0..40 {
        let next = client.empty(4 * len as usize);
        let buffers = vec![sum.binding(), one.clone().binding(), next.clone().binding()];
        client.launch(Box::new(Add), CubeCount::Static(1, 1, 1), KernelArguments::new().with_buffers(buffers));
        // The old sum is dropped here, and its memory serves a later round.
        sum = next;
    }
    assert_eq!(client.read_one(sum).unwrap().to_vec(), numbers(len, 1 + 40 * 3));
    assert!(cache().allocated_bytes() >= 4 * u64::from(len));
    cache().check().unwrap();
}

#[test]
fn a_server_out_of_memory_reclaims_and_tries_again() {
    let client = client();
    // Each is a page, and only one of them fits under the server's limit together with the next.
    for round in 0..8_u8 {
        let bytes = server::LIMIT / 2 + u64::from(round) * 4096;
        let handle = client.create_from_slice(&vec![round; usize::try_from(bytes).unwrap()]);
        let read = client.read_one(handle).unwrap();
        assert!(read.iter().all(|byte| *byte == round), "round {round}");
    }
    assert!(cache().stats().num_ooms > 0, "no request was refused");
}
