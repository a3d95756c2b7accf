//! A forked child can create new allocators.

use std::thread;

use cachette::{Allocator, Backends, Error};

use super::child::in_child;
use super::held::{BYTES, Held};

#[test]
fn a_child_opens_new_allocators() {
    let mut parents = Some(Held::new());
    in_child(|| {
        let parents = parents.take();
        for _ in 0..3 {
            let own = Held::new();
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            drop(own.allocator.allocate(BYTES, &own.stream).unwrap());
                        }
                    });
                }
            });
            own.assert_returns_everything();
        }
        let allocator = Allocator::new(Backends::open("host").unwrap());
        let stream = allocator.create_stream().unwrap();
        drop(parents);
        drop(allocator.allocate(BYTES, &stream).unwrap());
        assert!(allocator.allocated_bytes() == 0 && allocator.reserved_bytes() > 0);
    });
    parents.unwrap().assert_returns_everything();
}

#[test]
fn streams_of_the_parent_are_not_the_childs() {
    let parents = Held::new();
    in_child(|| {
        let own = Held::new();
        let foreign = own.allocator.allocate(BYTES, &parents.stream);
        assert_eq!(foreign.unwrap_err(), Error::ForeignStream);
        own.assert_returns_everything();
    });
    parents.assert_returns_everything();
}
