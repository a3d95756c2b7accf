//! A snapshot in the shape of the reference.

use std::collections::HashMap;
use std::io::{self, Write};

use super::key;
use super::opcode as op;
use super::writer::{BATCH, Memo, Writer, invalid};
use crate::{
    Annotation, Block, BlockState, Event, Frame, PoolId, Segment, SegmentKind, Setting, Snapshot, StackId, Stage,
    TextId, TraceAction,
};

/// There is one list of events for each device up to the last.
const MOST_DEVICES: usize = 1024;

pub(super) fn write(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut pickler = Pickler {
        out: Writer::begin(out)?,
        snapshot,
        words: HashMap::new(),
        frames: vec![None; snapshot.stacks.frames().len()],
        stacks: vec![None; snapshot.stacks.len() + 1],
        forward: vec![None; snapshot.stacks.len() + 1],
        texts: vec![None; snapshot.texts.all().len() + 1],
        pools: vec![None; snapshot.pools.len().max(1)],
    };
    pickler.snapshot()?;
    pickler.out.end()
}

/// Writes a snapshot, and whatever occurs often once.
struct Pickler<'a, W> {
    out: Writer<W>,
    snapshot: &'a Snapshot,
    /// The words of the reference that were written.
    words: HashMap<&'static str, Memo>,
    frames: Vec<Option<Memo>>,
    stacks: Vec<Option<Memo>>,
    /// Stacks again, in the form that they have as forward stacks.
    forward: Vec<Option<Memo>>,
    texts: Vec<Option<Memo>>,
    pools: Vec<Option<Memo>>,
}

impl<'a, W: Write> Pickler<'a, W> {
    fn snapshot(&mut self) -> io::Result<()> {
        let snapshot = self.snapshot;
        self.out.open_dict()?;
        // Events first: the words that all of them have then get the numbers that take the least room.
        self.word(key::TRACES)?;
        self.list(&self.events_by_device()?, |pickler, events| {
            pickler.list(events, |pickler, event| pickler.event(event))
        })?;
        self.word(key::SEGMENTS)?;
        self.list(&snapshot.segments, Self::segment)?;
        self.word(key::SETTINGS)?;
        self.settings(&snapshot.settings)?;
        self.word(key::ANNOTATIONS)?;
        self.list(&snapshot.annotations, Self::annotation)?;
        self.out.close_dict()
    }

    /// The events of each device up to the last that is named.
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
        self.word(key::SEGMENT_POOL_ID)?;
        self.pool(segment.pool)?;
        self.word(key::IS_EXPANDABLE)?;
        self.out.bool(segment.elastic)?;
        self.number(key::ORDER, segment.order)?;
        self.word(key::FRAMES)?;
        self.stack(segment.stack)?;
        self.word(key::BLOCKS)?;
        self.list(&segment.blocks, Self::block)?;
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
        self.word(key::FRAMES)?;
        self.stack(block.stack)?;
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
        self.word(key::TIME)?;
        self.out.signed(event.time_us)?;
        self.word(key::CONTEXT)?;
        match event.context {
            TextId::NONE => self.word(key::NO_CONTEXT)?,
            context => self.text(context)?,
        }
        self.word(key::METADATA)?;
        self.text(event.metadata)?;
        self.word(key::POOL_ID)?;
        self.pool(event.pool)?;
        self.word(key::FRAMES)?;
        self.stack(event.stack)?;
        if event.forward_stack != StackId::NONE {
            self.word(key::FORWARD_FRAMES)?;
            self.forward_stack(event.forward_stack)?;
        }
        self.out.close_dict()
    }

    fn annotation(&mut self, annotation: &Annotation) -> io::Result<()> {
        self.out.open_dict()?;
        self.word(key::NAME)?;
        self.out.text(&annotation.name)?;
        self.word(key::STAGE)?;
        self.word(match annotation.stage {
            Stage::Start => key::START,
            Stage::End => key::END,
        })?;
        self.number(key::DEVICE, annotation.device.into())?;
        self.word(key::TIME)?;
        self.out.signed(annotation.time_us)?;
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

    /// A stack, whose list is written when it is first met.
    fn stack(&mut self, id: StackId) -> io::Result<()> {
        let place = id.0 as usize;
        // What is not known is no stack.
        let place = if place < self.stacks.len() { place } else { 0 };
        if let Some(memo) = self.stacks[place] {
            return self.out.again(memo);
        }
        let stacks = &self.snapshot.stacks;
        let numbers = stacks.numbers_of(id);
        self.list(numbers, |pickler, &number| {
            let frame = &stacks.frames()[number as usize];
            pickler.frame(number as usize, frame)
        })?;
        self.stacks[place] = Some(self.out.keep()?);
        Ok(())
    }

    /// The stack of a forward pass: frames that are only a name are lines of a traceback.
    fn forward_stack(&mut self, id: StackId) -> io::Result<()> {
        let place = id.0 as usize;
        let place = if place < self.forward.len() { place } else { 0 };
        if let Some(memo) = self.forward[place] {
            return self.out.again(memo);
        }
        let stacks = &self.snapshot.stacks;
        self.list(stacks.numbers_of(id), |pickler, &number| {
            let frame = &stacks.frames()[number as usize];
            if frame.file.is_empty() && frame.line == 0 {
                return pickler.out.text(&format!("{}\n", frame.name));
            }
            pickler.frame(number as usize, frame)
        })?;
        self.forward[place] = Some(self.out.keep()?);
        Ok(())
    }

    fn frame(&mut self, number: usize, frame: &Frame) -> io::Result<()> {
        if let Some(memo) = self.frames[number] {
            return self.out.again(memo);
        }
        self.out.open_dict()?;
        self.word(key::NAME)?;
        self.out.text(&frame.name)?;
        self.word(key::FILENAME)?;
        self.out.text(&frame.file)?;
        self.number(key::LINE, frame.line.into())?;
        self.out.close_dict()?;
        self.frames[number] = Some(self.out.keep()?);
        Ok(())
    }

    fn pool(&mut self, number: u32) -> io::Result<()> {
        let place = number as usize;
        let place = if place < self.pools.len() { place } else { 0 };
        if let Some(memo) = self.pools[place] {
            return self.out.again(memo);
        }
        let pools = self.snapshot.pools.get(place).copied();
        let PoolId(first, second) = pools.unwrap_or_default();
        self.out.unsigned(first)?;
        self.out.unsigned(second)?;
        self.out.op(op::TUPLE2)?;
        self.pools[place] = Some(self.out.keep()?);
        Ok(())
    }

    fn text(&mut self, id: TextId) -> io::Result<()> {
        let place = id.0 as usize;
        let place = if place < self.texts.len() { place } else { 0 };
        if let Some(memo) = self.texts[place] {
            return self.out.again(memo);
        }
        self.out.text(self.snapshot.texts.get(id))?;
        self.texts[place] = Some(self.out.keep()?);
        Ok(())
    }

    /// A list of what `write` writes of each item.
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

    /// A word of the reference.
    fn word(&mut self, word: &'static str) -> io::Result<()> {
        if let Some(&memo) = self.words.get(word) {
            return self.out.again(memo);
        }
        self.out.text(word)?;
        let memo = self.out.keep()?;
        self.words.insert(word, memo);
        Ok(())
    }

    fn number(&mut self, key: &'static str, number: u64) -> io::Result<()> {
        self.word(key)?;
        self.out.unsigned(number)
    }
}
