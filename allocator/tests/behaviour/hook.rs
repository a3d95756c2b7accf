//! A callback in the middle of an allocator call.

use std::sync::{Arc, Mutex, mpsc};

use cachette::hal::{Call, StreamRef};
use cachette_hal::traced::{DriverCall, Observer};
use cachette_hal_host::HostConfig;

use crate::fixture::TestAllocator;
use crate::fixture::threads::{PATIENCE, is_waiting, start};

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

    /// Starts `work` on another thread after the next such call. The call returns when the work has ended or waits.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        call: Call,
        stream: Option<StreamRef>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Amid<T> {
        let (tell, told) = mpsc::channel();
        self.set(call, stream, move || {
            let (answer, answers) = mpsc::channel();
            is_waiting(&start(move || answer.send(work()).is_ok()));
            // A test that has failed does not listen.
            let _ = tell.send(answers);
        });
        Amid { told }
    }
}

/// Work that begins in the middle of an allocator call, on another thread.
pub(crate) struct Amid<T> {
    told: mpsc::Receiver<mpsc::Receiver<T>>,
}

impl<T> Amid<T> {
    /// What the work returns, now that the allocator call has ended.
    pub(crate) fn result(self) -> T {
        let answers = self.told.try_recv().expect("the driver call was made");
        answers.recv_timeout(PATIENCE).expect("it ends")
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
