//! The keys and values of the reference.

pub(super) const SEGMENTS: &str = "segments";
pub(super) const TRACES: &str = "device_traces";
pub(super) const SETTINGS: &str = "allocator_settings";
/// What was taken past the allocators. PyTorch's snapshots do not have it, and its viewers ignore it.
pub(super) const OUTSIDE: &str = "outside";
pub(super) const MANAGED: &str = "managed";
pub(super) const HOST: &str = "host";
pub(super) const ANNOTATIONS: &str = "external_annotations";

pub(super) const DEVICE: &str = "device";
pub(super) const ADDRESS: &str = "address";
pub(super) const TOTAL_SIZE: &str = "total_size";
pub(super) const ALLOCATED_SIZE: &str = "allocated_size";
pub(super) const ACTIVE_SIZE: &str = "active_size";
pub(super) const REQUESTED_SIZE: &str = "requested_size";
pub(super) const STREAM: &str = "stream";
pub(super) const SEGMENT_TYPE: &str = "segment_type";
pub(super) const SEGMENT_POOL_ID: &str = "segment_pool_id";
pub(super) const IS_EXPANDABLE: &str = "is_expandable";
/// Whether the segment has no memory now. PyTorch's snapshots do not have it, and its viewers ignore it.
pub(super) const IS_ASLEEP: &str = "is_asleep";
pub(super) const ORDER: &str = "registration_counter";
pub(super) const FRAMES: &str = "frames";
pub(super) const BLOCKS: &str = "blocks";
pub(super) const SMALL: &str = "small";
pub(super) const LARGE: &str = "large";

pub(super) const SIZE: &str = "size";
pub(super) const STATE: &str = "state";
pub(super) const ALLOCATED: &str = "active_allocated";
pub(super) const PENDING: &str = "active_pending_free";
/// The older name of [`PENDING`].
pub(super) const AWAITING: &str = "active_awaiting_free";
pub(super) const FREE: &str = "inactive";
/// The library that asked for a block. PyTorch's snapshots do not have it, and its viewers ignore it.
pub(super) const LABEL: &str = "label";

pub(super) const ACTION: &str = "action";
pub(super) const ADDR: &str = "addr";
pub(super) const DEVICE_FREE: &str = "device_free";
pub(super) const TIME: &str = "time_us";
pub(super) const CONTEXT: &str = "compile_context";
pub(super) const METADATA: &str = "user_metadata";
pub(super) const FORWARD_FRAMES: &str = "forward_frames";
pub(super) const POOL_ID: &str = "pool_id";
/// The value for no context.
pub(super) const NO_CONTEXT: &str = "N/A";

pub(super) const NAME: &str = "name";
pub(super) const FILENAME: &str = "filename";
pub(super) const LINE: &str = "line";
pub(super) const STAGE: &str = "stage";
pub(super) const START: &str = "START";
pub(super) const END: &str = "END";
