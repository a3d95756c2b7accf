//! Segments and blocks.

use super::super::key;
use super::super::tree::{Node, Value};
use super::{Builder, Made, holds};
use crate::{Block, BlockState, OutsideMemory, Segment, SegmentKind, StackId, TextId};

impl Builder<'_, '_> {
    pub(super) fn segments(&mut self, value: Value) -> Made<Vec<Segment>> {
        let mut orders = 0..;
        self.each(value, "'segments'", "an entry of 'segments'", |builder, node| {
            builder.segment(node, orders.next().unwrap_or_default())
        })
    }

    fn segment(&mut self, node: Node, order: u64) -> Made<Segment> {
        let (mut address, mut bytes, mut blocks) = (None, None, Value::None);
        let mut segment = Segment { order, ..Segment::default() };
        for (name, value) in self.tree.entries(node) {
            match self.word(name) {
                key::DEVICE => segment.device = self.device(value, node)?,
                key::ADDRESS => address = Some(self.bits(value, node, key::ADDRESS)?),
                key::TOTAL_SIZE => bytes = Some(self.whole_number(value, node, key::TOTAL_SIZE)?),
                key::STREAM => segment.stream = self.bits(value, node, key::STREAM)?,
                key::SEGMENT_TYPE => segment.kind = self.kind(value, node)?,
                key::SEGMENT_POOL_ID => segment.pool = self.pool(value, node)?,
                key::IS_EXPANDABLE => segment.elastic = value == Value::Bool(true),
                key::IS_ASLEEP => segment.asleep = value == Value::Bool(true),
                key::ORDER => segment.order = self.whole_number(value, node, key::ORDER)?,
                key::FRAMES => segment.stack = self.stack(value)?,
                key::BLOCKS => blocks = value,
                _ => (),
            }
        }
        let lacks = |name| self.amiss(Some(node), "a segment", format!("has no '{name}'"));
        segment.address = address.ok_or_else(|| lacks(key::ADDRESS))?;
        segment.bytes = bytes.ok_or_else(|| lacks(key::TOTAL_SIZE))?;
        segment.blocks = self.blocks(blocks, segment.address)?;
        Ok(segment)
    }

    fn kind(&self, value: Value, node: Node) -> Made<SegmentKind> {
        match self.word(value) {
            key::SMALL => Ok(SegmentKind::Small),
            key::LARGE => Ok(SegmentKind::Large),
            _ => Err(self.amiss(Some(node), "'segment_type'", holds(value, "neither 'small' nor 'large'"))),
        }
    }

    fn blocks(&mut self, value: Value, mut address: u64) -> Made<Vec<Block>> {
        self.each(value, "'blocks'", "an entry of 'blocks'", |builder, node| {
            let block = builder.block(node, address)?;
            address = block.address.wrapping_add(block.bytes);
            Ok(block)
        })
    }

    /// Reads a block. One without an address begins at the end of the previous one.
    pub(super) fn outside(&mut self, value: Value) -> Made<Vec<OutsideMemory>> {
        self.each(value, "'outside'", "memory outside", |builder, node| {
            let mut outside = OutsideMemory::default();
            for (name, value) in builder.tree.entries(node) {
                match builder.word(name) {
                    key::DEVICE => outside.device = builder.device(value, node)?,
                    key::SIZE => outside.bytes = builder.whole_number(value, node, key::SIZE)?,
                    key::MANAGED => outside.managed = builder.whole_number(value, node, key::MANAGED)?,
                    key::HOST => outside.host = builder.whole_number(value, node, key::HOST)?,
                    _ => (),
                }
            }
            Ok(outside)
        })
    }

    fn block(&mut self, node: Node, address: u64) -> Made<Block> {
        let (mut bytes, mut requested, mut state) = (None, None, None);
        let (mut address, mut stack, mut label) = (address, StackId::NONE, TextId::NONE);
        for (name, value) in self.tree.entries(node) {
            match self.word(name) {
                key::ADDRESS => address = self.bits(value, node, key::ADDRESS)?,
                key::SIZE => bytes = Some(self.whole_number(value, node, key::SIZE)?),
                key::REQUESTED_SIZE => requested = Some(self.whole_number(value, node, key::REQUESTED_SIZE)?),
                key::STATE => state = Some(self.state(value, node)?),
                key::FRAMES => stack = self.stack(value)?,
                key::LABEL => label = self.text_id(value, node)?,
                _ => (),
            }
        }
        let lacks = |name| self.amiss(Some(node), "a block", format!("has no '{name}'"));
        let bytes = bytes.ok_or_else(|| lacks(key::SIZE))?;
        let state = state.ok_or_else(|| lacks(key::STATE))?;
        let requested = match state {
            BlockState::Free => requested.unwrap_or(0),
            BlockState::Allocated | BlockState::Pending => requested.unwrap_or(bytes),
        };
        Ok(Block { address, bytes, requested, state, stack, label })
    }

    fn state(&self, value: Value, node: Node) -> Made<BlockState> {
        match self.word(value) {
            key::ALLOCATED => Ok(BlockState::Allocated),
            key::PENDING | key::AWAITING => Ok(BlockState::Pending),
            key::FREE => Ok(BlockState::Free),
            _ => Err(self.amiss(Some(node), "'state'", holds(value, "no state of a block"))),
        }
    }
}
