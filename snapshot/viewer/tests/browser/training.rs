//! A program that trains a model, in memory alone.

use std::collections::HashMap;

use cachette_snapshot::{Annotation, Frame, PoolId, Setting, Snapshot, StackId, Stage, Trace};

use crate::arena::{Arena, Ticket};

const MIB: u64 = 1 << 20;
const LAYERS: usize = 24;
const COMPUTE: u64 = 0;
const COMMUNICATE: u64 = 0x55d0_4c00_12a0;
const COPY: u64 = 0x55d0_4c00_3b40;

/// The parts of a layer: where in the program, and what it keeps until its backward pass, in MiB.
const PARTS: [(&str, &str, u32, u64); 6] = [
    ("norm", "model/block.py", 41, 12),
    ("project_qkv", "model/attention.py", 67, 48),
    ("attend", "model/attention.py", 92, 34),
    ("project_out", "model/attention.py", 108, 16),
    ("expand", "model/feed_forward.py", 29, 64),
    ("contract", "model/feed_forward.py", 33, 16),
];

/// What a run of that many events left behind, on two devices.
pub(crate) fn snapshot(events: usize) -> Snapshot {
    let mut snapshot = Snapshot {
        pools: vec![PoolId(0, 0), PoolId(0, 1), PoolId(1, 7)],
        settings: vec![
            ("expandable_segments".to_owned(), Setting::Switch(true)),
            ("max_split_size_mb".to_owned(), Setting::Integer(256)),
            ("garbage_collection_threshold".to_owned(), Setting::Number(0.8)),
        ],
        ..Snapshot::default()
    };
    for (device, events) in [(0, events), (1, events / 50)] {
        let arena = Arena::new(device, (25 << 10) * MIB);
        let mut program =
            Program { arena, snapshot: &mut snapshot, device, limit: events, seed: 7, stacks: HashMap::new() };
        program.run();
        let (segments, events) = program.arena.into_segments();
        snapshot.segments.extend(segments);
        snapshot.traces.push(Trace { device, events });
    }
    snapshot
}

struct Program<'a> {
    arena: Arena,
    snapshot: &'a mut Snapshot,
    device: u32,
    limit: usize,
    seed: usize,
    stacks: HashMap<(&'static str, usize, u32), StackId>,
}

impl Program<'_> {
    fn run(&mut self) {
        let weights = self.load();
        let mut pages = self.pages();
        let mut states = Vec::new();
        let mut step = 0;
        while !self.is_over() {
            self.step(step, &weights, &mut states, &mut pages);
            step += 1;
        }
    }

    fn is_over(&self) -> bool {
        self.arena.events.len() >= self.limit
    }

    /// The weights of every layer.
    fn load(&mut self) -> Vec<u64> {
        self.annotate("load", Stage::Start);
        self.metadata("load");
        let mut sizes = Vec::new();
        for layer in 0..LAYERS {
            for (part, (name, file, line, kept)) in PARTS.iter().enumerate() {
                let bytes = kept * MIB / 2 + 4096 * (part as u64 + 1);
                self.at(name, file, *line, layer, "load_weights");
                self.arena.allocate(bytes, COMPUTE, 0);
                sizes.push(bytes);
            }
            self.arena.now_us += 900;
        }
        self.annotate("load", Stage::End);
        sizes
    }

    /// A cache of many small pages, a tenth as many as there are events.
    fn pages(&mut self) -> Vec<Ticket> {
        self.metadata("cache");
        let count = (self.limit / 10).min(100_000);
        let mut pages = Vec::with_capacity(count);
        for page in 0..count {
            self.at("take_page", "data/page_cache.py", 118, page % 5, "fill_cache");
            let bytes = 2048 << self.random(5);
            pages.extend(self.arena.allocate(bytes, COPY, 2));
        }
        pages
    }

    fn step(&mut self, step: u64, weights: &[u64], states: &mut Vec<Ticket>, pages: &mut [Ticket]) {
        let name = format!("step {step}");
        self.annotate(&name, Stage::Start);
        let (kept, batch) = self.forward(step);
        let gradients = self.backward(kept, weights);
        self.arena.free(batch);
        if states.is_empty() && !self.is_over() {
            self.first_states(weights, states);
        }
        if !self.is_over() {
            self.optimize(gradients);
            self.turn_pages(pages);
        }
        self.annotate(&name, Stage::End);
    }

    fn forward(&mut self, step: u64) -> (Vec<(Ticket, usize, usize)>, Ticket) {
        self.annotate("forward", Stage::Start);
        self.metadata("forward");
        self.at("next_batch", "data/loader.py", 52, 0, "train_step");
        let batch = self.arena.allocate(96 * MIB, COPY, 0).expect("room for a batch");
        let mut kept = Vec::new();
        // Every fourth batch is longer, and the sixth more than the card can take.
        let length = if step == 5 {
            8
        } else if step % 4 == 3 {
            5
        } else {
            3
        };
        'layers: for layer in 0..LAYERS {
            for (part, (name, file, line, mib)) in PARTS.iter().enumerate() {
                if self.is_over() {
                    break 'layers;
                }
                self.at(name, file, *line, layer, "train_step");
                let bytes = mib * MIB * length / 2 + self.random(64) as u64 * 4096;
                let pool = u32::from(part == 2);
                let Some(ticket) = self.arena.allocate(bytes, COMPUTE, pool) else { break 'layers };
                kept.push((ticket, part, layer));
                self.temporaries(bytes / 3, 2);
                self.arena.now_us += 150 + bytes.cast_signed() / (4 << 20);
            }
        }
        self.annotate("forward", Stage::End);
        (kept, batch)
    }

    fn temporaries(&mut self, bytes: u64, count: u64) {
        for _ in 0..count {
            let size = bytes / (1 + self.random(6) as u64) + 1024;
            if let Some(ticket) = self.arena.allocate(size, COMPUTE, 0) {
                self.arena.free(ticket);
            }
        }
    }

    /// Frees what the forward pass kept, last first; leaves the gradients, which another stream sends away.
    fn backward(&mut self, kept: Vec<(Ticket, usize, usize)>, weights: &[u64]) -> Vec<Ticket> {
        self.annotate("backward", Stage::Start);
        self.metadata("backward");
        let mut gradients = Vec::new();
        let mut sent: Vec<Ticket> = Vec::new();
        let over = self.is_over();
        for (ticket, part, layer) in kept.into_iter().rev() {
            if over {
                break;
            }
            let (name, file, line, _) = PARTS[part];
            self.arena.forward_stack = self.stack_of(name, file, line, layer, "train_step");
            self.at("backward", "train.py", 88, part, "train_step");
            let bytes = weights[layer * PARTS.len() + part];
            gradients.extend(self.arena.allocate(bytes, COMPUTE, 0));
            self.temporaries(bytes, 3);
            self.arena.free(ticket);
            self.at("reduce_gradients", "parallel/reducer.py", 140, part, "train_step");
            if let Some(bucket) = self.arena.allocate(bytes, COMMUNICATE, 0) {
                self.arena.request_free(bucket);
                sent.push(bucket);
            }
            if sent.len() > 5 {
                self.arena.complete_free(sent.remove(0));
            }
            self.arena.now_us += 260;
        }
        for bucket in sent {
            self.arena.complete_free(bucket);
        }
        self.arena.forward_stack = StackId::NONE;
        self.annotate("backward", Stage::End);
        gradients
    }

    fn first_states(&mut self, weights: &[u64], states: &mut Vec<Ticket>) {
        self.metadata("optimizer");
        for (index, &bytes) in weights.iter().enumerate() {
            self.at("init_state", "optim/adam.py", 61, index % 6, "optimizer_step");
            states.extend(self.arena.allocate(2 * bytes, COMPUTE, 0));
        }
    }

    fn optimize(&mut self, gradients: Vec<Ticket>) {
        self.annotate("optimizer", Stage::Start);
        self.metadata("optimizer");
        for (index, gradient) in gradients.into_iter().enumerate() {
            self.at("update", "optim/adam.py", 97, index % 6, "optimizer_step");
            self.temporaries(8 * MIB, 2);
            self.arena.free(gradient);
            self.arena.now_us += 90;
        }
        self.annotate("optimizer", Stage::End);
    }

    /// Puts other pages into the place of some.
    fn turn_pages(&mut self, pages: &mut [Ticket]) {
        if pages.is_empty() {
            return;
        }
        for _ in 0..100 {
            let place = self.random(pages.len());
            self.at("take_page", "data/page_cache.py", 118, place % 5, "refresh_cache");
            self.arena.free(pages[place]);
            let bytes = 2048 << self.random(5);
            pages[place] = self.arena.allocate(bytes, COPY, 2).expect("room for a page");
        }
    }

    /// Says where in the program what follows happens.
    fn at(&mut self, name: &'static str, file: &'static str, line: u32, which: usize, phase: &'static str) {
        self.arena.stack = self.stack_of(name, file, line, which, phase);
    }

    fn stack_of(&mut self, name: &'static str, file: &str, line: u32, which: usize, phase: &str) -> StackId {
        let phase_line = phase.bytes().map(u32::from).sum::<u32>() % 90 + 100;
        let key = (name, which, phase_line);
        if let Some(&stack) = self.stacks.get(&key) {
            return stack;
        }
        let frame = |name: &str, file: &str, line| Frame { name: name.to_owned(), file: file.to_owned(), line };
        let library = "/opt/python/site-packages/tensors";
        let stack = self.snapshot.stacks.add([
            frame("tensors::empty(Shape const&)", "", 0),
            frame("method_vectorcall_FASTCALL_KEYWORDS", "Objects/descrobject.c", 426),
            frame("linear", &format!("{library}/functional.py"), 310),
            frame(name, &format!("/home/ada/run/{file}"), line),
            frame(&format!("layer_{which}"), "/home/ada/run/model/stack.py", 20),
            frame("__call__", &format!("{library}/module.py"), 77),
            frame(phase, "/home/ada/run/train.py", phase_line),
            frame("main", "/home/ada/run/train.py", 230),
        ]);
        self.stacks.insert(key, stack);
        stack
    }

    fn metadata(&mut self, words: &str) {
        self.arena.metadata = self.snapshot.texts.add(words);
    }

    fn annotate(&mut self, name: &str, stage: Stage) {
        let (device, time_us) = (self.device, self.arena.now_us);
        self.snapshot.annotations.push(Annotation { name: name.to_owned(), stage, device, time_us });
    }

    /// Less than `limit`, the same in every run.
    fn random(&mut self, limit: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % limit
    }
}
