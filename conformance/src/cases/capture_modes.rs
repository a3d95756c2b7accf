//! The threads that a capture restricts: modes of captures and of threads.

use std::thread;

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{CaptureMode, CaptureStatus, Device, DevicePtr, ErrorKind, Result};

use crate::rig::prelude::*;

cases! { capture:
    /// Allocating during a global capture fails, and the capture is broken.
    allocating_is_forbidden_and_breaks_it(Capture);
    /// A global capture binds every thread that is in global mode.
    allocating_on_another_thread_is_forbidden(Capture);
    /// A thread-local capture lets other threads allocate.
    a_thread_local_capture_leaves_other_threads_alone(Capture, Transfer);
    /// During a relaxed capture its own thread allocates, frees and waits.
    a_relaxed_capture_forbids_nothing(Capture, Transfer);
    /// A thread in relaxed mode allocates and frees during a global capture, which goes on.
    a_relaxed_thread_may_allocate(Capture, Transfer);
    /// A thread in relaxed mode polls events of other streams during a capture, which goes on.
    a_relaxed_thread_may_poll(Capture);
    /// It polls events that were recorded in the stream before the capture, which goes on.
    a_relaxed_thread_may_poll_what_came_before(Capture);
    /// A new thread is in global mode, whatever others are in.
    threads_begin_in_global_mode(Capture);
    /// The guard puts back the mode it found, also when guards are nested.
    a_relaxed_guard_restores_the_mode(Capture);
}

fn allocating_is_forbidden_and_breaks_it(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        let capturing = Capturing::begin(on, &stream, mode)?;
        let memory = on.device.allocate(MIB);
        let status = on.capture_status(&stream)?;
        let ended = capturing.end();
        if let Ok(ptr) = memory {
            free(on, ptr)?;
        }
        refuse(memory, &[ErrorKind::CaptureForbids], "an allocation during capture")?;
        ensure_eq!(status, CaptureStatus::Broken, "the stream after it")?;
        refuse(ended, &[ErrorKind::CaptureBroken], "the end of the broken capture")?;
    }
    Ok(on.memory(MIB)?.close()?)
}

/// Frees memory that was just allocated, without the wait of an owner.
fn free(on: &Subject, ptr: DevicePtr) -> Result<()> {
    // SAFETY: 1. callers pass memory that they allocated. 2. No work has used it.
    unsafe { on.device.free(ptr) }
}

fn allocate_elsewhere(on: &Subject) -> Result<()> {
    let elsewhere = thread::scope(|scope| scope.spawn(|| on.device.allocate(MIB)).join());
    let ptr = elsewhere.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let _relaxed = RelaxedCapture::enter(&on.device)?;
    free(on, ptr)
}

fn allocating_on_another_thread_is_forbidden(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Global)?;
    capturing.break_by(|| allocate_elsewhere(on), "an allocation on another thread")
}

fn a_thread_local_capture_leaves_other_threads_alone(on: &Subject) -> Verdict {
    on.expect_whole(CaptureMode::ThreadLocal, |_| Ok(allocate_elsewhere(on)?))
}

fn a_relaxed_capture_forbids_nothing(on: &Subject) -> Verdict {
    let other = on.stream()?;
    on.expect_whole(CaptureMode::Relaxed, |_| {
        free(on, on.device.allocate(MIB)?)?;
        Ok(other.synchronize()?)
    })
}

fn a_relaxed_thread_may_allocate(on: &Subject) -> Verdict {
    on.expect_whole(CaptureMode::Global, |_| {
        let _relaxed = RelaxedCapture::enter(&on.device)?;
        Ok(free(on, on.device.allocate(MIB)?)?)
    })
}

fn a_relaxed_thread_may_poll(on: &Subject) -> Verdict {
    let (stream, other, event) = (on.stream()?, on.stream()?, on.event()?);
    event.record(&other)?;
    event.wait()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Global)?;
    {
        let _relaxed = RelaxedCapture::enter(&on.device)?;
        ensure!(event.poll()?.is_done(), "an event that had passed is pending")?;
    }
    capturing.end()?;
    Ok(())
}

fn a_relaxed_thread_may_poll_what_came_before(on: &Subject) -> Verdict {
    let (stream, event) = (on.stream()?, on.event()?);
    event.record(&stream)?;
    event.wait()?;
    for mode in [CaptureMode::Global, CaptureMode::Relaxed] {
        let capturing = Capturing::begin(on, &stream, mode)?;
        {
            let _relaxed = RelaxedCapture::enter(&on.device)?;
            // Some drivers cannot tell before the end of the capture.
            if let Err(refused) = event.poll() {
                ensure_eq!(refused.kind(), ErrorKind::CaptureForbids, "an event that the driver cannot tell of")?;
            }
        }
        capturing.end()?;
        ensure!(event.poll()?.is_done(), "after the capture, an event that had passed is pending")?;
    }
    Ok(())
}

fn mode_here(on: &Subject) -> Verdict<CaptureMode> {
    let capture = on.device.capture()?;
    let mode = capture.exchange_capture_mode(CaptureMode::Relaxed)?;
    capture.exchange_capture_mode(mode)?;
    Ok(mode)
}

fn threads_begin_in_global_mode(on: &Subject) -> Verdict {
    ensure_eq!(mode_here(on)?, CaptureMode::Global, "a new thread's mode")?;
    let _relaxed = RelaxedCapture::enter(&on.device)?;
    let elsewhere = thread::scope(|scope| scope.spawn(|| mode_here(on)).join());
    ensure_eq!(joined(elsewhere, "the thread")??, CaptureMode::Global, "another new thread's mode")
}

fn a_relaxed_guard_restores_the_mode(on: &Subject) -> Verdict {
    let capture = on.device.capture()?;
    let outer = RelaxedCapture::enter(&on.device)?;
    ensure_eq!(mode_here(on)?, CaptureMode::Relaxed, "the mode under a guard")?;
    drop(RelaxedCapture::enter(&on.device)?);
    ensure_eq!(mode_here(on)?, CaptureMode::Relaxed, "the mode after a nested guard")?;
    drop(outer);
    ensure_eq!(mode_here(on)?, CaptureMode::Global, "the mode after the guard")?;
    capture.exchange_capture_mode(CaptureMode::ThreadLocal)?;
    drop(RelaxedCapture::enter(&on.device)?);
    let found = capture.exchange_capture_mode(CaptureMode::Global)?;
    ensure_eq!(found, CaptureMode::ThreadLocal, "the mode after another guard")
}
