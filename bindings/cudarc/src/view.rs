//! Parts of a slice.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use cachette::hal::{AnyDevice, Device};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop};

use crate::slice::Slice;

/// Some elements of a [`Slice`], to be read. Uses are ordered as uses of the whole slice.
pub struct View<'s, T, D: Device = AnyDevice> {
    slice: &'s Slice<T, D>,
    /// Ends within the slice.
    range: Range<usize>,
}

/// Some elements of a [`Slice`], to be written. Uses are ordered as uses of the whole slice.
pub struct ViewMut<'s, T, D: Device = AnyDevice> {
    slice: &'s mut Slice<T, D>,
    /// Ends within the slice.
    range: Range<usize>,
}

/// What both views do in the same way.
macro_rules! view {
    ($view:ident, $slice:ty) => {
        impl<'s, T, D: Device> $view<'s, T, D> {
            pub(crate) fn new(slice: $slice, range: Range<usize>) -> Self {
                Self { slice, range }
            }

            /// The device address of the first element, as an argument for kernels.
            #[must_use]
            pub fn address(&self) -> u64 {
                self.slice.address() + offset::<T>(&self.range)
            }
        }

        impl<T, D: Device> DeviceSlice<T> for $view<'_, T, D> {
            fn len(&self) -> usize {
                self.range.len()
            }

            fn stream(&self) -> &Arc<CudaStream> {
                self.slice.stream()
            }
        }

        impl<T, D: Device> DevicePtr<T> for $view<'_, T, D> {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                let (start, guard) = self.slice.device_ptr(stream);
                (start + offset::<T>(&self.range), guard)
            }
        }

        impl<T, D: Device> fmt::Debug for $view<'_, T, D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($view)).field("slice", &self.slice).field("range", &self.range).finish()
            }
        }
    };
}

view!(View, &'s Slice<T, D>);
view!(ViewMut, &'s mut Slice<T, D>);

impl<T, D: Device> DevicePtrMut<T> for ViewMut<'_, T, D> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        let offset = offset::<T>(&self.range);
        let (start, guard) = self.slice.device_ptr_mut(stream);
        (start + offset, guard)
    }
}

/// Bytes from the start of the slice.
const fn offset<T>(range: &Range<usize>) -> u64 {
    (range.start * size_of::<T>()) as u64
}

/// The range of indices among `len` elements.
pub(crate) fn bounds(range: &impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    assert!(start <= end && end <= len, "the range {start}..{end} does not lie in a slice of {len} elements");
    start..end
}
