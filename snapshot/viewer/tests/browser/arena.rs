//! A small allocator of numbers that writes down what it does.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use cachette_snapshot::{Block, BlockState, Event, Segment, SegmentKind, StackId, TextId, TraceAction};

const GRAIN: u64 = 512;
const SMALL: u64 = 1 << 20;

/// Which blocks can serve a request: those of its stream, its pool and its kind.
type Home = (u64, u32, bool);

/// What a caller has.
pub(crate) type Ticket = u64;

/// Memory of one device.
pub(crate) struct Arena {
    pub(crate) events: Vec<Event>,
    pub(crate) now_us: i64,
    pub(crate) stack: StackId,
    pub(crate) forward_stack: StackId,
    pub(crate) metadata: TextId,
    device: u32,
    /// What the card has left.
    capacity: u64,
    next_address: u64,
    segments: Vec<Segment>,
    starts: HashSet<u64>,
    homes: HashMap<u64, Home>,
    blocks: BTreeMap<u64, Block>,
    free: HashMap<Home, BTreeSet<(u64, u64)>>,
}

impl Arena {
    pub(crate) fn new(device: u32, capacity: u64) -> Self {
        Self {
            events: Vec::new(),
            now_us: 1_760_000_000_000_000,
            stack: StackId::NONE,
            forward_stack: StackId::NONE,
            metadata: TextId::NONE,
            device,
            capacity,
            next_address: 0x7f3a_0000_0000,
            segments: Vec::new(),
            starts: HashSet::new(),
            homes: HashMap::new(),
            blocks: BTreeMap::new(),
            free: HashMap::new(),
        }
    }

    /// An allocation, or nothing if the card has no more.
    pub(crate) fn allocate(&mut self, bytes: u64, stream: u64, pool: u32) -> Option<Ticket> {
        let size = bytes.max(1).next_multiple_of(GRAIN);
        let home = (stream, pool, size > SMALL);
        if self.best(home, size).is_none() {
            self.grow(home, size)?;
        }
        let (found, address) = self.best(home, size)?;
        self.free.entry(home).or_default().remove(&(found, address));
        if found - size >= if home.2 { SMALL } else { GRAIN } {
            self.list(home, address + size, found - size);
        }
        let taken = if self.blocks.contains_key(&(address + size)) { size } else { found };
        let block = Block {
            address,
            bytes: taken,
            requested: bytes,
            state: BlockState::Allocated,
            stack: self.stack,
            label: TextId::NONE,
        };
        self.blocks.insert(address, block);
        self.homes.insert(address, home);
        self.tell(TraceAction::Alloc, address, bytes, home);
        Some(address)
    }

    /// Gives back; other streams may still use it.
    pub(crate) fn request_free(&mut self, ticket: Ticket) {
        let home = self.homes[&ticket];
        let block = self.blocks.get_mut(&ticket).expect("a ticket that was given out");
        block.state = BlockState::Pending;
        let bytes = block.requested;
        self.tell(TraceAction::FreeRequested, ticket, bytes, home);
    }

    /// Other streams are done with it.
    pub(crate) fn complete_free(&mut self, ticket: Ticket) {
        let home = self.homes.remove(&ticket).expect("a ticket that was given out");
        let block = self.blocks[&ticket];
        self.tell(TraceAction::FreeCompleted, ticket, block.requested, home);
        let (mut address, mut bytes) = (ticket, block.bytes);
        if !self.starts.contains(&(address + bytes))
            && let Some(right) = self.take_free(home, address + bytes)
        {
            bytes += right.bytes;
        }
        let left = self.blocks.range(..ticket).next_back().map(|(_, left)| *left);
        if let Some(left) = left.filter(|left| !self.starts.contains(&ticket) && left.address + left.bytes == ticket)
            && self.take_free(home, left.address).is_some()
        {
            address = left.address;
            bytes += left.bytes;
        }
        self.blocks.remove(&ticket);
        self.list(home, address, bytes);
    }

    pub(crate) fn free(&mut self, ticket: Ticket) {
        self.request_free(ticket);
        self.complete_free(ticket);
    }

    /// What is held, with the blocks in their places.
    pub(crate) fn into_segments(mut self) -> (Vec<Segment>, Vec<Event>) {
        for segment in &mut self.segments {
            let end = segment.address + segment.bytes;
            segment.blocks = self.blocks.range(segment.address..end).map(|(_, block)| *block).collect();
        }
        self.segments.sort_by_key(|segment| segment.address);
        (self.segments, self.events)
    }

    fn best(&self, home: Home, size: u64) -> Option<(u64, u64)> {
        self.free.get(&home)?.range((size, 0)..).next().copied()
    }

    fn list(&mut self, home: Home, address: u64, bytes: u64) {
        let block =
            Block { address, bytes, requested: 0, state: BlockState::Free, stack: StackId::NONE, label: TextId::NONE };
        self.blocks.insert(address, block);
        self.free.entry(home).or_default().insert((bytes, address));
    }

    fn take_free(&mut self, home: Home, address: u64) -> Option<Block> {
        let block = *self.blocks.get(&address)?;
        let was_free = self.free.entry(home).or_default().remove(&(block.bytes, address));
        was_free.then(|| self.blocks.remove(&address)).flatten()
    }

    /// Streams other than the default have elastic segments, in ranges with holes between them.
    fn grow(&mut self, home: Home, size: u64) -> Option<()> {
        let elastic = home.2 && home.0 != 0;
        let bytes = if home.2 { size.next_multiple_of(2 << 20).max(256 << 20) } else { 2 << 20 };
        if bytes > self.capacity {
            let free = self.capacity;
            self.tell(TraceAction::OutOfMemory, free, size, home);
            return None;
        }
        self.capacity -= bytes;
        let address = self.next_address;
        self.next_address += bytes + if elastic { 40 << 20 } else { 0 };
        let kind = if home.2 { SegmentKind::Large } else { SegmentKind::Small };
        self.segments.push(Segment {
            device: self.device,
            address,
            bytes,
            stream: home.0,
            kind,
            pool: home.1,
            elastic,
            order: self.segments.len() as u64,
            stack: self.stack,
            ..Segment::default()
        });
        self.starts.insert(address);
        self.list(home, address, bytes);
        self.tell(if elastic { TraceAction::SegmentMap } else { TraceAction::SegmentAlloc }, address, bytes, home);
        Some(())
    }

    fn tell(&mut self, action: TraceAction, address: u64, bytes: u64, home: Home) {
        self.now_us += 3 + (address >> 9).cast_signed() % 11;
        self.events.push(Event {
            address,
            bytes,
            stream: home.0,
            time_us: self.now_us,
            stack: self.stack,
            forward_stack: self.forward_stack,
            metadata: self.metadata,
            context: TextId::NONE,
            pool: home.1,
            action,
        });
    }
}
