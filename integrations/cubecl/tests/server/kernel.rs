//! A kernel that the server runs itself.

use std::slice;

use cachette_cubecl::Resource;
use cubecl_ir::metadata::Info;
use cubecl_ir::settings::{Dim3, ExecutionMode, KernelSettings};
use cubecl_ir::{AddressType, ElemType, Scope, UIntKind};
use cubecl_server::id::KernelId;
use cubecl_server::kernel::{CubeKernel, KernelDefinition, KernelMetadata};

/// Adds two buffers of 32-bit numbers into a third.
#[derive(Clone, Debug)]
pub(crate) struct Add;

impl Add {
    pub(crate) fn run(&[left, right, sum]: &[Resource; 3]) {
        for ((sum, left), right) in words(sum).iter_mut().zip(words(left)).zip(words(right)) {
            *sum = left.wrapping_add(*right);
        }
    }
}

/// The numbers of a buffer.
fn words(resource: Resource) -> &'static mut [u32] {
    let (at, len) = (resource.address() as *mut u32, resource.bytes() / 4);
    // SAFETY: the addresses of the host device are host memory, which the caller's binding keeps. Buffers do not overlap.
    unsafe { slice::from_raw_parts_mut(at, usize::try_from(len).expect("a length")) }
}

impl KernelMetadata for Add {
    fn id(&self) -> KernelId {
        KernelId::new::<Self>()
    }

    fn address_type(&self) -> ElemType {
        ElemType::UInt(UIntKind::U32)
    }
}

impl CubeKernel for Add {
    fn define(&self) -> KernelDefinition {
        let settings = KernelSettings::new(Dim3::new_single(), ExecutionMode::Checked, AddressType::U32);
        KernelDefinition { body: Scope::root(settings.clone()), settings, info: Info::default() }
    }
}
