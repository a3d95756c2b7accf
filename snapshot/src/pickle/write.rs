//! Writes a snapshot in the shape of the reference.

use std::collections::HashMap;
use std::io::{self, Write};

use super::key;
use super::opcode as op;
use super::writer::{BATCH, Memo, Writer, invalid};
use crate::{
    Annotation, Block, BlockState, Event, Frame, OutsideMemory, PoolId, Segment, SegmentKind, Setting, Snapshot,
    StackId, Stage, TextId, TraceAction,
};

/// The limit on devices: there is one list of events for each device up to the last.
const MOST_DEVICES: usize = 1024;

pub(super) fn write(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut pickler = Pickler {
        out: Writer::begin(out)?,
        snapshot,
        words: HashMap::new(),
        memos: [
            vec![None; snapshot.stacks.frames().len()],
            vec![None; snapshot.stacks.len() + 1],
            vec![None; snapshot.stacks.len() + 1],
            vec![None; snapshot.texts.all().len() + 1],
            vec![None; snapshot.pools.len().max(1)],
        ],
    };
    pickler.snapshot()?;
    pickler.out.end()
}

/// Writes a snapshot. Repeated values are written once.
struct Pickler<'a, W> {
    out: Writer<W>,
    snapshot: &'a Snapshot,
    /// The keys and words of the reference that are already written.
    words: HashMap<&'static str, Memo>,
    /// The entries of each [`Table`] that are already written.
    memos: [Vec<Option<Memo>>; 5],
}

/// A table of the snapshot, whose entries are written once.
#[derive(Clone, Copy, Debug)]
enum Table {
    Frames,
    Stacks,
    /// Stacks in the form of forward stacks.
    ForwardStacks,
    Texts,
    Pools,
}

impl<'a, W: Write> Pickler<'a, W> {
    fn snapshot(&mut self) -> io::Result<()> {
        let snapshot = self.snapshot;
        self.out.open_dict()?;
        // Events come first: the words that all of them contain then get the shortest numbers.
        self.word(key::TRACES)?;
        self.list(&self.events_by_device()?, |pickler, events| {
            pickler.list(events, |pickler, event| pickler.event(event))
        })?;
        self.entry(key::SEGMENTS, |pickler| pickler.list(&snapshot.segments, Self::segment))?;
        self.entry(key::SETTINGS, |pickler| pickler.settings(&snapshot.settings))?;
        self.entry(key::ANNOTATIONS, |pickler| pickler.list(&snapshot.annotations, Self::annotation))?;
        if !snapshot.outside.is_empty() {
            self.entry(key::OUTSIDE, |pickler| pickler.list(&snapshot.outside, Self::outside))?;
        }
        self.out.close_dict()
    }

    /// Returns the events of each device up to the last one.
    fn events_by_device(&self) -> io::Result<Vec<Vec<&'a Event>>> {
        let held = self.snapshot.segments.iter().map(|segment| segment.device);
        let traced = self.snapshot.traces.iter().map(|trace| trace.device);
        let count = held.chain(traced).max().map_or(0, |last| last as usize + 1);
        if count > MOST_DEVICES {
            let text = format!("device {} is not below {MOST_DEVICES}", count - 1);
            return Err(invalid(&text));
        }
        let mut devices = vec![Vec::new(); count];
        for trace in &self.snapshot.traces {
            devices[trace.device as usize].extend(&trace.events);
        }
        Ok(devices)
    }

    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        let allocated = segment.bytes_in(BlockState::Allocated);
        let active = allocated.saturating_add(segment.bytes_in(BlockState::Pending));
        self.out.open_dict()?;
        self.number(key::DEVICE, segment.device.into())?;
        self.number(key::ADDRESS, segment.address)?;
        self.number(key::TOTAL_SIZE, segment.bytes)?;
        self.number(key::ALLOCATED_SIZE, allocated)?;
        self.number(key::ACTIVE_SIZE, active)?;
        self.number(key::REQUESTED_SIZE, segment.requested())?;
        self.number(key::STREAM, segment.stream)?;
        self.word(key::SEGMENT_TYPE)?;
        self.word(match segment.kind {
            SegmentKind::Small => key::SMALL,
            SegmentKind::Large => key::LARGE,
        })?;
        self.entry(key::SEGMENT_POOL_ID, |pickler| pickler.pool(segment.pool))?;
        self.entry(key::IS_EXPANDABLE, |pickler| pickler.out.bool(segment.elastic))?;
        if segment.asleep {
            self.entry(key::IS_ASLEEP, |pickler| pickler.out.bool(true))?;
        }
        self.number(key::ORDER, segment.order)?;
        self.entry(key::FRAMES, |pickler| pickler.stack(segment.stack))?;
        self.entry(key::BLOCKS, |pickler| pickler.list(&segment.blocks, Self::block))?;
        self.out.close_dict()
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        self.out.open_dict()?;
        self.number(key::ADDRESS, block.address)?;
        self.number(key::SIZE, block.bytes)?;
        self.number(key::REQUESTED_SIZE, block.requested)?;
        self.word(key::STATE)?;
        self.word(match block.state {
            BlockState::Allocated => key::ALLOCATED,
            BlockState::Pending => key::PENDING,
            BlockState::Free => key::FREE,
        })?;
        if block.label != TextId::NONE {
            self.entry(key::LABEL, |pickler| pickler.text(block.label))?;
        }
        self.entry(key::FRAMES, |pickler| pickler.stack(block.stack))?;
        self.out.close_dict()
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.out.open_dict()?;
        self.word(key::ACTION)?;
        self.word(event.action.name())?;
        let address = match event.action {
            TraceAction::OutOfMemory => key::DEVICE_FREE,
            _ => key::ADDR,
        };
        self.number(address, event.address)?;
        self.number(key::SIZE, event.bytes)?;
        self.number(key::STREAM, event.stream)?;
        self.entry(key::TIME, |pickler| pickler.out.signed(event.time_us))?;
        self.word(key::CONTEXT)?;
        match event.context {
            TextId::NONE => self.word(key::NO_CONTEXT)?,
            context => self.text(context)?,
        }
        self.entry(key::METADATA, |pickler| pickler.text(event.metadata))?;
        self.entry(key::POOL_ID, |pickler| pickler.pool(event.pool))?;
        self.entry(key::FRAMES, |pickler| pickler.stack(event.stack))?;
        if event.forward_stack != StackId::NONE {
            self.entry(key::FORWARD_FRAMES, |pickler| pickler.forward_stack(event.forward_stack))?;
        }
        self.out.close_dict()
    }

    fn annotation(&mut self, annotation: &Annotation) -> io::Result<()> {
        self.out.open_dict()?;
        self.entry(key::NAME, |pickler| pickler.out.text(&annotation.name))?;
        self.word(key::STAGE)?;
        self.word(match annotation.stage {
            Stage::Start => key::START,
            Stage::End => key::END,
        })?;
        self.number(key::DEVICE, annotation.device.into())?;
        self.entry(key::TIME, |pickler| pickler.out.signed(annotation.time_us))?;
        self.out.close_dict()
    }

    fn outside(&mut self, outside: &OutsideMemory) -> io::Result<()> {
        self.out.open_dict()?;
        self.number(key::DEVICE, outside.device.into())?;
        self.number(key::SIZE, outside.bytes)?;
        self.number(key::MANAGED, outside.managed)?;
        self.number(key::HOST, outside.host)?;
        self.out.close_dict()
    }

    fn settings(&mut self, table: &[(String, Setting)]) -> io::Result<()> {
        self.out.open_dict()?;
        for (name, setting) in table {
            self.out.text(name)?;
            match setting {
                Setting::None => self.out.op(op::NONE)?,
                Setting::Switch(on) => self.out.bool(*on)?,
                Setting::Integer(number) => self.out.signed(*number)?,
                Setting::Number(number) => self.out.float(*number)?,
                Setting::Text(text) => self.out.text(text)?,
                Setting::Table(table) => self.settings(table)?,
            }
        }
        self.out.close_dict()
    }

    fn stack(&mut self, id: StackId) -> io::Result<()> {
        self.once(Table::Stacks, id.0, |pickler, _| pickler.frames(id, Self::frame))
    }

    /// Writes the stack of a forward pass: frames that are only a name are lines of a traceback.
    fn forward_stack(&mut self, id: StackId) -> io::Result<()> {
        self.once(Table::ForwardStacks, id.0, |pickler, _| {
            pickler.frames(id, |pickler, number, frame| {
                if frame.file.is_empty() && frame.line == 0 {
                    return pickler.out.text(&format!("{}\n", frame.name));
                }
                pickler.frame(number, frame)
            })
        })
    }

    fn frames(&mut self, id: StackId, write: impl Fn(&mut Self, u32, &Frame) -> io::Result<()>) -> io::Result<()> {
        let stacks = &self.snapshot.stacks;
        self.list(stacks.numbers_of(id), |pickler, &number| write(pickler, number, &stacks.frames()[number as usize]))
    }

    fn frame(&mut self, number: u32, frame: &Frame) -> io::Result<()> {
        self.once(Table::Frames, number, |pickler, _| {
            pickler.out.open_dict()?;
            pickler.entry(key::NAME, |pickler| pickler.out.text(&frame.name))?;
            pickler.entry(key::FILENAME, |pickler| pickler.out.text(&frame.file))?;
            pickler.number(key::LINE, frame.line.into())?;
            pickler.out.close_dict()
        })
    }

    fn pool(&mut self, number: u32) -> io::Result<()> {
        self.once(Table::Pools, number, |pickler, place| {
            let PoolId(first, second) = pickler.snapshot.pools.get(place).copied().unwrap_or_default();
            pickler.out.unsigned(first)?;
            pickler.out.unsigned(second)?;
            pickler.out.op(op::TUPLE2)
        })
    }

    fn text(&mut self, id: TextId) -> io::Result<()> {
        self.once(Table::Texts, id.0, |pickler, _| pickler.out.text(pickler.snapshot.texts.get(id)))
    }

    /// Refers to an entry of a table; `write` writes it at its first use. An index beyond the table means its first.
    fn once(
        &mut self,
        table: Table,
        place: u32,
        write: impl FnOnce(&mut Self, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let memos = &self.memos[table as usize];
        let place = if (place as usize) < memos.len() { place as usize } else { 0 };
        if let Some(memo) = memos[place] {
            return self.out.again(memo);
        }
        write(self, place)?;
        self.memos[table as usize][place] = Some(self.out.keep()?);
        Ok(())
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T) -> io::Result<()>) -> io::Result<()> {
        self.out.op(op::EMPTY_LIST)?;
        for batch in items.chunks(BATCH) {
            self.out.op(op::MARK)?;
            for item in batch {
                write(self, item)?;
            }
            self.out.op(op::APPENDS)?;
        }
        Ok(())
    }

    /// Writes a word of the reference.
    fn word(&mut self, word: &'static str) -> io::Result<()> {
        if let Some(&memo) = self.words.get(word) {
            return self.out.again(memo);
        }
        self.out.text(word)?;
        let memo = self.out.keep()?;
        self.words.insert(word, memo);
        Ok(())
    }

    /// Writes a key, and its value with `write`.
    fn entry(&mut self, key: &'static str, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.word(key)?;
        write(self)
    }

    fn number(&mut self, key: &'static str, number: u64) -> io::Result<()> {
        self.entry(key, |pickler| pickler.out.unsigned(number))
    }
}
