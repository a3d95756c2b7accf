//! A callback in the middle of an allocator call.

use std::sync::{Arc, Mutex};

use cachette::hal::{Call, StreamRef};
use cachette_hal_host::HostConfig;
use cachette_hal_testing::traced::{DriverCall, Observer};

use crate::fixture::TestAllocator;

/// A function that runs once, after a driver call of one kind.
#[derive(Default)]
pub(crate) struct Hook {
    act: Mutex<Option<Act>>,
}

type Act = (Call, Option<StreamRef>, Box<dyn FnOnce() + Send>);

impl Hook {
    /// Runs `act` after the next such call. Without a stream, the call of any stream counts.
    pub(crate) fn set(&self, call: Call, stream: Option<StreamRef>, act: impl FnOnce() + Send + 'static) {
        *self.act.lock().expect("no test failed in it") = Some((call, stream, Box::new(act)));
    }
}

impl TestAllocator {
    /// An allocator with a hook on its driver calls.
    pub(crate) fn hooked(host: HostConfig, text: &str) -> (Self, Arc<Hook>) {
        let hook = Arc::new(Hook::default());
        (Self::traced(host, text, Arc::clone(&hook)), hook)
    }
}

impl Observer for Hook {
    fn call(&self, call: &DriverCall) {
        let mut act = self.act.lock().expect("no test failed in it");
        let meant = |act: &mut Act| call.call == act.0 && (act.1.is_none() || call.stream == act.1);
        let found = act.take_if(meant);
        drop(act);
        if let Some((_, _, act)) = found {
            act();
        }
    }
}
