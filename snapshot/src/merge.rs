//! Merges two snapshots: of several devices, or of several allocators of one device.

use crate::{Event, Snapshot, StackId, TextId};

impl Snapshot {
    /// Merges both snapshots. The references of `other` get the numbers of this one.
    ///
    /// Segments stay in order of device and address, and the events of a device and all annotations in order of time.
    /// For a key in both, the value of this snapshot is kept. Annotations in both are kept once.
    #[must_use]
    pub fn merge(mut self, mut other: Self) -> Self {
        let numbers = self.adopt_names(&other);
        for segment in &mut other.segments {
            segment.pool = numbers.pool(segment.pool);
            segment.stack = numbers.stack(segment.stack);
            for block in &mut segment.blocks {
                block.stack = numbers.stack(block.stack);
                block.label = numbers.text(block.label);
            }
        }
        self.segments.append(&mut other.segments);
        self.segments.sort_by_key(|segment| (segment.device, segment.address));
        for mut trace in other.traces {
            for event in &mut trace.events {
                numbers.rename(event);
            }
            match self.traces.iter_mut().find(|own| own.device == trace.device) {
                None => self.traces.push(trace),
                Some(own) => {
                    own.events.append(&mut trace.events);
                    own.events.sort_by_key(|event| event.time_us);
                }
            }
        }
        self.traces.sort_by_key(|trace| trace.device);
        self.outside.append(&mut other.outside);
        self.outside.sort_by_key(|outside| outside.device);
        self.outside.dedup_by(|next, own| {
            let same = own.device == next.device;
            *own = if same { own.and(*next) } else { *own };
            same
        });
        self.annotations.append(&mut other.annotations);
        self.annotations.sort_by(|a, b| (a.time_us, a.device, &a.name).cmp(&(b.time_us, b.device, &b.name)));
        self.annotations.dedup();
        for (key, value) in other.settings {
            if self.settings.iter().all(|(own, _)| *own != key) {
                self.settings.push((key, value));
            }
        }
        self
    }

    /// Adds the pools, stacks and texts of another snapshot. Returns their numbers in this one.
    fn adopt_names(&mut self, other: &Self) -> Numbers {
        let place_of = |pool| {
            let place = self.pools.iter().position(|own| *own == pool).unwrap_or_else(|| {
                self.pools.push(pool);
                self.pools.len() - 1
            });
            u32::try_from(place).unwrap_or(u32::MAX)
        };
        let pools = other.pools.iter().copied().map(place_of).collect();
        let frames = other.stacks.frames().iter().cloned();
        let frames: Vec<u32> = frames.map(|frame| self.stacks.add_frame(frame)).collect();
        let stack_of = |id| {
            let numbers = other.stacks.numbers_of(id).iter().map(|number| frames[*number as usize]);
            self.stacks.add_numbers(numbers.collect())
        };
        let stacks = other.stacks.ids().map(stack_of).collect();
        let texts = other.texts.all().iter();
        let texts = texts.map(|text| self.texts.add(text)).collect();
        Numbers { pools, stacks, texts }
    }
}

/// The numbers of one snapshot's entries in another.
#[derive(Debug)]
struct Numbers {
    pools: Vec<u32>,
    /// By number minus one, as are the texts.
    stacks: Vec<StackId>,
    texts: Vec<TextId>,
}

impl Numbers {
    fn pool(&self, pool: u32) -> u32 {
        self.pools.get(pool as usize).copied().unwrap_or(pool)
    }

    fn stack(&self, id: StackId) -> StackId {
        let index = (id.0 as usize).wrapping_sub(1);
        self.stacks.get(index).copied().unwrap_or_default()
    }

    fn text(&self, id: TextId) -> TextId {
        let index = (id.0 as usize).wrapping_sub(1);
        self.texts.get(index).copied().unwrap_or_default()
    }

    fn rename(&self, event: &mut Event) {
        event.pool = self.pool(event.pool);
        event.stack = self.stack(event.stack);
        event.forward_stack = self.stack(event.forward_stack);
        event.metadata = self.text(event.metadata);
        event.context = self.text(event.context);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Annotation, Block, Frame, OutsideMemory, PoolId, Segment, Setting, Stage, Trace};

    use super::*;

    /// A snapshot of one device with one segment, one event and one annotation.
    fn one(device: u32, address: u64, pool: PoolId, place: &str, time_us: i64) -> Snapshot {
        let mut snapshot = Snapshot {
            pools: vec![PoolId::default(), pool],
            settings: vec![("caching".to_owned(), Setting::Switch(device == 0))],
            annotations: vec![Annotation { name: "step".to_owned(), stage: Stage::Start, device: 0, time_us: 7 }],
            ..Snapshot::default()
        };
        let frame = |name: &str| Frame { name: name.to_owned(), ..Frame::default() };
        let stack = snapshot.stacks.add([frame(place), frame("main")]);
        let metadata = snapshot.texts.add(place);
        snapshot.segments.push(Segment {
            device,
            address,
            bytes: 512,
            pool: 1,
            stack,
            blocks: vec![Block { address, bytes: 512, stack, label: metadata, ..Block::default() }],
            ..Segment::default()
        });
        snapshot.traces.push(Trace {
            device,
            events: vec![Event { address, time_us, stack, metadata, pool: 1, ..Event::default() }],
        });
        snapshot
    }

    /// The contents of a snapshot without numbers: per event the place, the words, the pool, the time.
    fn told(snapshot: &Snapshot) -> Vec<(u32, String, String, PoolId, i64)> {
        let events = snapshot.traces.iter().flat_map(|trace| {
            let told = |event: &Event| {
                let mut frames = snapshot.stacks.frames_of(event.stack);
                let place = frames.next().map(|frame| frame.name.clone());
                let words = snapshot.texts.get(event.metadata).to_owned();
                let pool = snapshot.pools[event.pool as usize];
                (trace.device, place.unwrap(), words, pool, event.time_us)
            };
            trace.events.iter().map(told)
        });
        events.collect()
    }

    #[test]
    fn names_keep_their_meaning_when_two_devices_become_one_snapshot() {
        let first = one(1, 4096, PoolId(0, 3), "a", 10);
        let second = one(0, 8192, PoolId(0, 5), "b", 5);
        let both = first.clone().merge(second.clone());
        let mut wanted = told(&second);
        wanted.extend(told(&first));
        assert_eq!(told(&both), wanted);
        let places: Vec<_> = both.segments.iter().map(|s| (s.device, s.address)).collect();
        assert_eq!(places, [(0, 8192), (1, 4096)]);
        for (segment, place) in both.segments.iter().zip(["b", "a"]) {
            assert_eq!(both.texts.get(segment.blocks[0].label), place);
            for stack in [segment.stack, segment.blocks[0].stack] {
                assert_eq!(both.stacks.frames_of(stack).next().unwrap().name, place);
            }
        }
        assert_eq!(both.pools[0], PoolId::default());
        assert_eq!(both.annotations.len(), 1, "said once");
        assert_eq!(both.settings, first.settings);
    }

    #[test]
    fn two_allocators_of_one_device_have_one_trace_in_order_of_time() {
        let both = one(0, 8192, PoolId(0, 1), "a", 10).merge(one(0, 4096, PoolId(0, 1), "a", 5));
        assert_eq!(both.traces.len(), 1);
        let times: Vec<_> = told(&both).iter().map(|told| told.4).collect();
        assert_eq!(times, [5, 10]);
        assert_eq!((both.pools.len(), both.stacks.len()), (2, 1));
    }

    #[test]
    fn memory_past_the_allocators_of_one_device_adds_up() {
        let of = |device, bytes| Snapshot {
            outside: vec![OutsideMemory { device, bytes, managed: 1, host: u64::MAX }],
            ..Snapshot::default()
        };
        let all = of(1, 10).merge(of(0, 5)).merge(of(1, 7));
        let told: Vec<_> = all.outside.iter().map(|it| (it.device, it.bytes, it.managed, it.host)).collect();
        assert_eq!(told, [(0, 5, 1, u64::MAX), (1, 17, 2, u64::MAX)]);
    }

    #[test]
    fn nothing_added_changes_nothing() {
        let one = one(0, 4096, PoolId(2, 0), "a", 1);
        assert_eq!(one.clone().merge(Snapshot::default()), one);
    }
}
