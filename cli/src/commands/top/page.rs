//! The live page in a terminal.

use std::cmp::Reverse;
use std::io;
use std::time::{Duration, Instant};

use cachette::human::Bytes;
use cachette_ipc::reclaim::Holder;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};
use ratatui::{DefaultTerminal, Frame};

use super::sample::{Process, Sample, Sampler};
use super::text::{HEADINGS, NONE, cells, title};

const HELP: &str = "q quit  ↑↓ select  s sort  g give back idle memory  e evict too  h holders  w write a snapshot";

/// By what the processes of a device are sorted, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Reserved,
    Idle,
    Outside,
    Pid,
}

impl Order {
    const fn next(self) -> Self {
        match self {
            Self::Reserved => Self::Idle,
            Self::Idle => Self::Outside,
            Self::Outside => Self::Pid,
            Self::Pid => Self::Reserved,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Idle => "idle",
            Self::Outside => "outside",
            Self::Pid => "pid",
        }
    }

    fn sort(self, processes: &mut [Process]) {
        let held = |process: &Process, figure: fn(&super::sample::AllocatorFigures) -> u64| {
            process.cachette.as_ref().map(figure)
        };
        match self {
            Self::Reserved => processes.sort_by_key(|it| Reverse(held(it, |held| held.reserved))),
            Self::Idle => processes.sort_by_key(|it| Reverse(held(it, |held| held.idle))),
            Self::Outside => processes.sort_by_key(|it| Reverse(it.outside)),
            Self::Pid => processes.sort_by_key(|it| it.pid),
        }
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    Quit,
    Give { evict: bool },
    Holders,
    Snapshot,
}

/// The page and what is selected.
pub(super) struct TopPage {
    sampler: Sampler,
    view: TopView,
}

#[derive(Debug, Default)]
struct TopView {
    sample: Sample,
    order: Order,
    /// The selected row, counted over all devices.
    selected: usize,
    message: String,
}

impl TopPage {
    pub(super) fn new(sampler: Sampler) -> Self {
        Self { sampler, view: TopView::default() }
    }

    /// Shows the page until the user quits. The terminal is as before afterwards, also after a panic.
    pub(super) fn run(mut self, interval: Duration) -> io::Result<()> {
        let mut terminal = ratatui::try_init()?;
        let ended = self.turn(&mut terminal, interval);
        ratatui::restore();
        ended
    }

    fn turn(&mut self, terminal: &mut DefaultTerminal, interval: Duration) -> io::Result<()> {
        loop {
            self.view.show(self.sampler.look()?);
            let next = Instant::now() + interval;
            loop {
                terminal.draw(|frame| self.view.draw(frame))?;
                if !event::poll(next.saturating_duration_since(Instant::now()))? {
                    break;
                }
                let Event::Key(key) = event::read()? else { continue };
                match self.view.press(key) {
                    Wish::Quit => return Ok(()),
                    Wish::Nothing => {}
                    wish => {
                        self.ask(wish)?;
                        break;
                    }
                }
            }
        }
    }

    /// Asks the selected process, and shows its answer.
    fn ask(&mut self, wish: Wish) -> io::Result<()> {
        let Some(process) = self.view.selected() else { return Ok(()) };
        let (pid, Some(peer)) = (process.pid, process.peer.clone()) else {
            self.view.message = format!("{} has no Cachette to ask", process.pid);
            return Ok(());
        };
        let silent = || format!("{pid} does not answer now");
        self.view.message = match wish {
            Wish::Give { evict } => format!("{pid} has given back {}", Bytes(self.sampler.give(&peer, evict)?)),
            Wish::Holders => {
                self.sampler.asker.holders(&peer)?.map_or_else(silent, |holders| format!("{pid}: {}", listed(&holders)))
            }
            Wish::Snapshot => {
                self.sampler.asker.snapshot(&peer)?.map_or_else(silent, |path| format!("{pid} has written {path}"))
            }
            Wish::Quit | Wish::Nothing => return Ok(()),
        };
        Ok(())
    }
}

/// Labels and pools in one line.
fn listed(holders: &[Holder]) -> String {
    let row = |holder: &Holder| {
        let kind = if holder.is_pool { "pool " } else { "" };
        format!("{kind}{} {}", holder.name, Bytes(holder.bytes))
    };
    let rows: Vec<_> = holders.iter().map(row).collect();
    if rows.is_empty() { "it holds nothing".to_owned() } else { rows.join(", ") }
}

impl TopView {
    /// Shows a sample. The same process stays selected, wherever it is now.
    fn show(&mut self, mut sample: Sample) {
        let name = |process: &Process| (process.pid, process.peer.as_ref().map(|peer| peer.name().to_owned()));
        let selected = self.selected().map(name);
        sample.devices.iter_mut().for_each(|device| self.order.sort(&mut device.processes));
        let mut all = sample.devices.iter().flat_map(|device| &device.processes);
        let place = all.position(|process| Some(name(process)) == selected);
        self.sample = sample;
        self.selected = place.unwrap_or(self.selected).min(self.rows().saturating_sub(1));
    }

    fn rows(&self) -> usize {
        self.sample.devices.iter().map(|device| device.processes.len()).sum()
    }

    fn selected(&self) -> Option<&Process> {
        self.sample.devices.iter().flat_map(|device| &device.processes).nth(self.selected)
    }

    fn press(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Nothing;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Wish::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
            KeyCode::Char('g') => return Wish::Give { evict: false },
            KeyCode::Char('e') => return Wish::Give { evict: true },
            KeyCode::Char('h') => return Wish::Holders,
            KeyCode::Char('w') => return Wish::Snapshot,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => {
                self.selected = (self.selected + 1).min(self.rows().saturating_sub(1));
            }
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.show(self.sample.clone());
            }
            _ => {}
        }
        Wish::Nothing
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let heights = self.sample.devices.iter().flat_map(|device| {
            let rows = u16::try_from(device.processes.len()).unwrap_or(u16::MAX);
            [Constraint::Length(1), Constraint::Length(rows.saturating_add(2))]
        });
        let heights: Vec<_> = heights.chain([Constraint::Min(0), Constraint::Length(2)]).collect();
        let areas = Layout::vertical(heights).split(frame.area());
        if self.sample.devices.is_empty() {
            frame.render_widget(Paragraph::new(NONE).wrap(Wrap { trim: true }), areas[0]);
        }
        let mut first = 0;
        for (device, areas) in self.sample.devices.iter().zip(areas.chunks(2)) {
            frame.render_widget(Line::from(title(device)).style(Modifier::BOLD), areas[0]);
            let cells: Vec<_> = device.processes.iter().map(cells).collect();
            let widths = (0..HEADINGS.len()).map(|column| {
                let longest = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
                // A long name gives way to figures.
                let longest = longest.max(HEADINGS[column].len()).min(24);
                Constraint::Length(u16::try_from(longest).unwrap_or(24))
            });
            let rows = cells.iter().map(|row| Row::new(row.clone()));
            let table = Table::new(rows, widths)
                .header(Row::new(HEADINGS).style(Style::new().add_modifier(Modifier::UNDERLINED)))
                .row_highlight_style(Modifier::REVERSED);
            let selected = self.selected.checked_sub(first).filter(|row| *row < device.processes.len());
            let mut state = TableState::new().with_selected(selected);
            frame.render_stateful_widget(table, areas[1], &mut state);
            first += device.processes.len();
        }
        let sorted = format!("{HELP}  sorted by {}", self.order.name());
        let last = vec![Line::from(self.message.as_str()), Line::from(sorted)];
        frame.render_widget(Paragraph::new(last), areas[areas.len() - 1]);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::sample::{AllocatorFigures, Device, Facts};
    use super::*;

    fn process(pid: u32, reserved: u64, idle: u64) -> Process {
        let held = AllocatorFigures { reserved, idle, ..AllocatorFigures::default() };
        Process { pid, program: "python3 train.py".to_owned(), cachette: Some(held), ..Process::default() }
    }

    fn view() -> TopView {
        let card = Facts { name: "NVIDIA H200".to_owned(), total: 141 << 30, used: 3 << 30, unattributed: 1 << 30 };
        let processes = vec![process(11, 1 << 20, 0), process(12, 1 << 30, 1 << 10)];
        let device = Device { uuid: String::new(), card: Some(card), processes };
        let other = Device { uuid: "07".to_owned(), card: None, processes: vec![process(13, 5 << 20, 0)] };
        let mut view = TopView::default();
        view.show(Sample { devices: vec![device, other] });
        view
    }

    fn screen(view: &TopView) -> String {
        let mut terminal = Terminal::new(TestBackend::new(120, 14)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn press(view: &mut TopView, code: KeyCode) -> Wish {
        view.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn every_device_has_its_title_and_its_processes_the_largest_first() {
        let text = screen(&view());
        let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} in {text}"));
        let order = [
            "NVIDIA H200: 3.00 GiB of 141.00 GiB used, 1.00 GiB of no listed process",
            "pid",
            "12 ",
            "11 ",
            "device 07",
            "13 ",
            "q quit",
        ];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{text}");
    }

    #[test]
    fn the_selection_moves_over_all_devices_and_stays_within() {
        let mut view = view();
        let pids: Vec<_> = (0..4)
            .map(|_| {
                let pid = view.selected().map(|process| process.pid);
                assert_eq!(press(&mut view, KeyCode::Down), Wish::Nothing);
                pid
            })
            .collect();
        assert_eq!(pids, [Some(12), Some(11), Some(13), Some(13)]);
        view.show(Sample::default());
        assert_eq!((view.selected, view.selected().is_some()), (0, false));
        assert!(screen(&view).contains("no process answers"));
    }

    #[test]
    fn the_selected_process_stays_selected_when_others_grow_or_end() {
        let mut view = view();
        press(&mut view, KeyCode::Down);
        for processes in [vec![process(12, 1, 0), process(11, 2, 0), process(14, 3, 0)], vec![process(11, 1, 0)]] {
            view.show(Sample { devices: vec![Device { processes, ..Device::default() }] });
            assert_eq!(view.selected().map(|process| process.pid), Some(11));
        }
    }

    #[test]
    fn holders_are_one_line() {
        let holder = |name: &str, is_pool, bytes| Holder { name: name.to_owned(), is_pool, bytes };
        let line = listed(&[holder("kv_cache", false, 3 << 30), holder("(0, 3)", true, 1 << 20)]);
        assert_eq!(line, "kv_cache 3.00 GiB, pool (0, 3) 1.00 MiB");
        assert_eq!(listed(&[]), "it holds nothing");
    }

    #[test]
    fn keys_sort_ask_and_quit() {
        let mut view = view();
        for name in ["idle", "outside", "pid", "reserved"] {
            press(&mut view, KeyCode::Char('s'));
            assert!(screen(&view).contains(&format!("sorted by {name}")));
            assert_eq!(view.selected().map(|process| process.pid), Some(12));
        }
        assert_eq!(press(&mut view, KeyCode::Char('g')), Wish::Give { evict: false });
        assert_eq!(press(&mut view, KeyCode::Char('e')), Wish::Give { evict: true });
        assert_eq!(press(&mut view, KeyCode::Char('h')), Wish::Holders);
        assert_eq!(press(&mut view, KeyCode::Char('w')), Wish::Snapshot);
        assert_eq!(press(&mut view, KeyCode::Esc), Wish::Quit);
        assert_eq!(view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Wish::Quit);
    }
}
