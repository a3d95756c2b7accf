//! Runs the opcodes of a pickle that build plain data, and no others.

use super::opcode as op;
use super::tree::{Failure, Node, Tree, Value, short};
use crate::budget::Budget;
use crate::{Excess, PickleProblem};

/// The supported protocols.
const PROTOCOLS: std::ops::RangeInclusive<u8> = 2..=5;
/// The number of characters of a name that are shown.
const SHOWN: usize = 80;

type Step<T = ()> = Result<T, PickleProblem>;

/// Returns the data of a pickle.
pub(super) fn run<'a>(bytes: &'a [u8], budget: &'a Budget) -> Result<Tree<'a>, Failure> {
    let mut machine = Machine::new(bytes, budget);
    loop {
        let offset = machine.offset;
        let step = machine.begin().and_then(|code| machine.step(code));
        match step {
            Ok(false) => (),
            Ok(true) => return Ok(machine.tree),
            Err(problem) => {
                // A truncated pickle is reported at the end of the file.
                let offset = match problem {
                    PickleProblem::CutShort => bytes.len(),
                    _ => offset,
                };
                return Err(Failure { offset: offset as u64, problem });
            }
        }
    }
}

struct Machine<'a> {
    tree: Tree<'a>,
    /// The next byte.
    offset: usize,
    /// The start of the current opcode.
    begun: usize,
    stack: Vec<Value>,
    /// Heights of the stack at which containers begin.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    memoized: usize,
    depth: u32,
}

impl<'a> Machine<'a> {
    fn new(bytes: &'a [u8], budget: &'a Budget) -> Self {
        Self {
            tree: Tree::new(bytes, budget),
            offset: 0,
            begun: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            memoized: 0,
            depth: budget.limits().depth,
        }
    }

    /// Reads the next opcode; the first one contains the protocol.
    fn begin(&mut self) -> Step<u8> {
        self.begun = self.offset;
        let [code] = self.take_array()?;
        if self.begun == 0 && code != op::PROTO {
            return Err(PickleProblem::Opcode(code));
        }
        Ok(code)
    }

    /// Runs one opcode. Returns whether it was the last.
    fn step(&mut self, code: u8) -> Step<bool> {
        match code {
            op::STOP => {
                self.tree.root = self.pop()?;
                return Ok(true);
            }
            op::PROTO => {
                let [version] = self.take_array()?;
                if !PROTOCOLS.contains(&version) {
                    return Err(PickleProblem::Protocol(version));
                }
            }
            // Frames are only a hint for reading ahead.
            op::FRAME => {
                self.take_array::<8>()?;
            }
            op::MARK => self.mark()?,
            op::POP => self.pop_any()?,
            op::POP_MARK => self.stack.truncate(self.marks.pop().ok_or(NO_MARK)?),
            _ => self.value(code)?,
        }
        Ok(false)
    }

    fn value(&mut self, code: u8) -> Step {
        let value = match code {
            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::BININT => Value::Integer(i32::from_le_bytes(self.take_array()?).into()),
            op::BININT1 => Value::Integer(u8::from_le_bytes(self.take_array()?).into()),
            op::BININT2 => Value::Integer(u16::from_le_bytes(self.take_array()?).into()),
            op::LONG1 | op::LONG4 => {
                let length = self.length(if code == op::LONG1 { 1 } else { 4 })?;
                long(self.take(length)?)
            }
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.take_array()?)),
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => self.text(1)?,
            op::BINUNICODE | op::BINSTRING => self.text(4)?,
            op::BINUNICODE8 => self.text(8)?,
            op::SHORT_BINBYTES => self.raw(1)?,
            op::BINBYTES => self.raw(4)?,
            op::BINBYTES8 | op::BYTEARRAY8 => self.raw(8)?,
            op::BINGET => {
                let [index] = self.take_array()?;
                self.recall(index.into())?
            }
            op::LONG_BINGET => {
                let index = u32::from_le_bytes(self.take_array()?);
                self.recall(index)?
            }
            op::EMPTY_TUPLE => Value::Tuple(self.tree.add(self.begun)?),
            op::EMPTY_LIST => Value::List(self.tree.add(self.begun)?),
            op::EMPTY_DICT => Value::Dict(self.tree.add(self.begun)?),
            _ => return self.container(code),
        };
        self.push(value)
    }

    fn container(&mut self, code: u8) -> Step {
        match code {
            op::TUPLE1 => self.tuple(1),
            op::TUPLE2 => self.tuple(2),
            op::TUPLE3 => self.tuple(3),
            op::TUPLE | op::LIST | op::DICT => {
                let from = self.marks.pop().ok_or(NO_MARK)?;
                let node = self.gather(from)?;
                self.push(match code {
                    op::TUPLE => Value::Tuple(node),
                    op::LIST => Value::List(node),
                    _ => self.paired(node)?,
                })
            }
            op::APPEND => self.fill(1),
            op::SETITEM => self.fill(2),
            op::APPENDS | op::SETITEMS => {
                let from = self.marks.pop().ok_or(NO_MARK)?;
                self.fill(self.stack.len().checked_sub(from).ok_or(TOO_LITTLE)?)
            }
            _ => self.memo(code),
        }
    }

    fn memo(&mut self, code: u8) -> Step {
        let index = match code {
            op::BINPUT => u8::from_le_bytes(self.take_array()?).into(),
            op::LONG_BINPUT => u32::from_le_bytes(self.take_array()?) as usize,
            op::MEMOIZE => self.memoized,
            _ => return Err(self.refuse(code)),
        };
        let value = *self.stack.last().ok_or(TOO_LITTLE)?;
        // A counter from zero is far below the number of bytes.
        if index > self.offset {
            return Err(PickleProblem::Damaged("a memo is numbered beyond what was kept"));
        }
        if index >= self.memo.len() {
            let more = index + 1 - self.memo.len();
            self.tree.budget.reserve(&mut self.memo, more)?;
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(value);
        self.memoized += 1;
        Ok(())
    }

    /// Returns why an opcode is not run.
    fn refuse(&mut self, code: u8) -> PickleProblem {
        match code {
            op::GLOBAL | op::INST => match (self.line(), self.line()) {
                (Ok(module), Ok(name)) => PickleProblem::Global(joined(module, name)),
                _ => PickleProblem::CutShort,
            },
            op::STACK_GLOBAL => {
                let (name, module) = (self.stack.pop(), self.stack.pop());
                let word = |value: Option<Value>| value.and_then(|value| self.tree.raw(value));
                let word = |value| word(value).unwrap_or(b"?");
                PickleProblem::Global(joined(word(module), word(name)))
            }
            code if op::CALLS.contains(&code) => PickleProblem::Call,
            code => PickleProblem::Opcode(code),
        }
    }

    fn mark(&mut self) -> Step {
        if self.marks.len() >= self.depth as usize {
            return Err(PickleProblem::Excess(Excess::TooMany {
                what: "are more containers inside of each other",
                limit: self.depth.into(),
            }));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Removes the top of the stack, even if it is a mark.
    fn pop_any(&mut self) -> Step {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn push(&mut self, value: Value) -> Step {
        self.tree.budget.reserve(&mut self.stack, 1)?;
        self.stack.push(value);
        Ok(())
    }

    /// Removes a value above the last mark.
    fn pop(&mut self) -> Step<Value> {
        if self.marks.last().is_some_and(|&mark| mark >= self.stack.len()) {
            return Err(TOO_LITTLE);
        }
        self.stack.pop().ok_or(TOO_LITTLE)
    }

    fn tuple(&mut self, length: usize) -> Step {
        let from = self.stack.len().checked_sub(length).ok_or(TOO_LITTLE)?;
        let node = self.gather(from)?;
        self.push(Value::Tuple(node))
    }

    /// Creates a container from the values above a height.
    fn gather(&mut self, from: usize) -> Step<Node> {
        let node = self.tree.add(self.begun)?;
        let values = self.stack.get(from..).ok_or(TOO_LITTLE)?;
        self.tree.extend(node, values)?;
        self.stack.truncate(from);
        Ok(node)
    }

    fn paired(&self, node: Node) -> Step<Value> {
        if self.tree.len(node).is_multiple_of(2) { Ok(Value::Dict(node)) } else { Err(UNPAIRED) }
    }

    /// Moves the top values into the container below them.
    fn fill(&mut self, count: usize) -> Step {
        let from = self.stack.len().checked_sub(count).ok_or(TOO_LITTLE)?;
        let below = from.checked_sub(1).ok_or(TOO_LITTLE)?;
        let code = self.tree.bytes[self.begun];
        let node = match (self.stack[below], code) {
            (Value::List(node), op::APPEND | op::APPENDS) => node,
            (Value::Dict(node), op::SETITEM | op::SETITEMS) => {
                if !count.is_multiple_of(2) {
                    return Err(UNPAIRED);
                }
                node
            }
            _ => return Err(PickleProblem::Damaged("there is no container to fill")),
        };
        self.tree.extend(node, &self.stack[from..])?;
        self.stack.truncate(from);
        Ok(())
    }

    fn recall(&self, index: u32) -> Step<Value> {
        let found = self.memo.get(index as usize).copied().flatten();
        found.ok_or(PickleProblem::Damaged("a memo is asked for that was not kept"))
    }

    fn text(&mut self, width: usize) -> Step<Value> {
        let length = self.length(width)?;
        let start = short(self.offset)?;
        let length = short(self.take(length)?.len())?;
        Ok(Value::Text { start, length })
    }

    fn raw(&mut self, width: usize) -> Step<Value> {
        let length = self.length(width)?;
        self.take(length)?;
        Ok(Value::Bytes)
    }

    /// Reads a length of `width` bytes.
    fn length(&mut self, width: usize) -> Step<usize> {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.take(width)?);
        usize::try_from(u64::from_le_bytes(bytes)).map_err(|_| PickleProblem::CutShort)
    }

    fn take(&mut self, length: usize) -> Step<&'a [u8]> {
        let rest = &self.tree.bytes[self.offset..];
        let taken = rest.get(..length).ok_or(PickleProblem::CutShort)?;
        self.offset += length;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Step<[u8; N]> {
        let rest = &self.tree.bytes[self.offset..];
        let taken = rest.first_chunk().ok_or(PickleProblem::CutShort)?;
        self.offset += N;
        Ok(*taken)
    }

    /// Reads up to the end of the line.
    fn line(&mut self) -> Step<&'a [u8]> {
        let rest = &self.tree.bytes[self.offset..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = self.take(end.ok_or(PickleProblem::CutShort)?)?;
        self.offset += 1;
        Ok(line)
    }
}

const NO_MARK: PickleProblem = PickleProblem::Damaged("a container ends that did not begin");
const TOO_LITTLE: PickleProblem = PickleProblem::Damaged("an operation has too few values");
const UNPAIRED: PickleProblem = PickleProblem::Damaged("a dict has a key without a value");

/// Decodes a whole number, lowest byte first.
fn long(bytes: &[u8]) -> Value {
    let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
    let fill = if negative { 0xFF } else { 0 };
    let (low, high) = bytes.split_at(bytes.len().min(8));
    let mut word = [fill; 8];
    word[..low.len()].copy_from_slice(low);
    let word = u64::from_le_bytes(word);
    // Bytes above the eighth must only repeat the sign.
    let extended = high.iter().all(|byte| *byte == fill);
    match (extended, negative, word.cast_signed()) {
        (true, true, signed) if signed < 0 => Value::Integer(signed),
        (true, false, signed) if signed >= 0 => Value::Integer(signed),
        (true, false, _) => Value::Large(word),
        _ => Value::Huge,
    }
}

fn joined(module: &[u8], name: &[u8]) -> String {
    let word = |bytes: &[u8]| bytes[..bytes.len().min(SHOWN)].escape_ascii().to_string();
    format!("{}.{}", word(module), word(name))
}
