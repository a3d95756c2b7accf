//! A browser without a window, driven over its debugging pipe.
//!
//! The pipe is two file descriptors, three and four, that carry JSON with a zero byte after each message. A shell puts
//! its own input and output there.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PATIENCE: Duration = Duration::from_secs(60);
const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe";

/// The browser on the path, if there is one.
pub(crate) fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let files = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// One browser with one page, gone when dropped.
pub(crate) struct Chromium {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    /// Removed after the browser has gone.
    _profile: TempDir,
    /// Exceptions, and what the browser refused.
    complaints: VecDeque<String>,
    /// What the page asked for, itself included.
    requests: usize,
}

impl Chromium {
    /// Starts a browser; `name` tells its files from those of others.
    pub(crate) fn start(name: &str) -> Self {
        let program = installed().expect("looked for before");
        let profile = tempfile::Builder::new().prefix(name).tempdir().expect("room for a folder");
        let script = format!("exec \"$0\" {FLAGS} --user-data-dir=\"$1\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .args([program.as_path(), profile.path()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let value = serde_json::from_slice(&message).expect("messages are JSON");
                message.clear();
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let (complaints, requests) = (VecDeque::new(), 0);
        let mut browser =
            Self { child, input, messages, session: None, calls: 0, _profile: profile, complaints, requests };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached = self.call("Target.attachToTarget", &json!({ "targetId": target["targetId"], "flatten": true }));
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        self.call("Performance.enable", &json!({ "timeDomain": "threadTicks" }));
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
        let size = json!({ "width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Asks the browser for something and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).expect("the browser listens");
        loop {
            let mut message = self.messages.recv_timeout(PATIENCE).expect("the browser answers");
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.heard(&message);
        }
    }

    fn heard(&mut self, message: &Value) {
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => {
                self.complaints.push_back(message["params"].to_string());
            }
            Some("Network.requestWillBeSent") => self.requests += 1,
            _ => {}
        }
    }

    /// Opens a page, waits until it is drawn, and answers how many milliseconds that took.
    pub(crate) fn open(&mut self, file: &Path, hash: &str) -> f64 {
        self.call("Page.navigate", &json!({ "url": "about:blank" }));
        self.requests = 0;
        self.call("Page.navigate", &json!({ "url": format!("file://{}#{hash}", file.display()) }));
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(opened) = self.evaluate("Number(document.documentElement?.dataset.opened ?? 0)").as_f64()
                && opened > 0.0
            {
                return opened;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the page did not open; the browser said {:?}", self.complaints);
    }

    /// The value of an expression on the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params = &json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// The same for text.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        self.evaluate(expression).as_str().unwrap_or_default().to_owned()
    }

    /// The same for whole numbers from zero on.
    pub(crate) fn count(&mut self, expression: &str) -> u64 {
        let value = self.evaluate(expression);
        value.as_u64().unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    /// The same for numbers.
    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        self.evaluate(expression).as_f64().unwrap_or(f64::NAN)
    }

    /// Waits until what was done is drawn.
    pub(crate) fn settle(&mut self) {
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    }

    pub(crate) fn move_to(&mut self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, 0);
        self.settle();
    }

    pub(crate) fn click(&mut self, x: f64, y: f64) {
        self.drag(x, x, y);
    }

    /// Presses at one place and lets go at another.
    pub(crate) fn drag(&mut self, from: f64, to: f64, y: f64) {
        self.mouse("mouseMoved", from, y, 0);
        self.mouse("mousePressed", from, y, 1);
        self.mouse("mouseMoved", to, y, 1);
        self.mouse("mouseReleased", to, y, 1);
        self.settle();
    }

    fn mouse(&mut self, kind: &str, x: f64, y: f64, buttons: u32) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let params = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", &params);
    }

    pub(crate) fn wheel(&mut self, x: f64, y: f64, delta: f64) {
        let params = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": delta });
        self.call("Input.dispatchMouseEvent", &params);
        self.settle();
    }

    pub(crate) fn key(&mut self, key: &str) {
        let text = if key.len() == 1 { key } else { "" };
        self.call("Input.dispatchKeyEvent", &json!({ "type": "keyDown", "key": key, "text": text }));
        self.call("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key }));
        self.settle();
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
        self.settle();
    }

    /// Seconds of a processor that the page's own thread has used so far.
    pub(crate) fn work_s(&mut self) -> f64 {
        let metrics = self.call("Performance.getMetrics", &json!({}));
        let metrics = metrics["metrics"].as_array().expect("a list of metrics");
        let work = metrics.iter().find(|metric| metric["name"] == "TaskDuration");
        work.and_then(|metric| metric["value"].as_f64()).expect("seconds")
    }

    /// Exceptions and refusals since the last look.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.settle();
        self.complaints.drain(..).collect()
    }

    /// How many things the last page asked for, itself included.
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.session = None;
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) && !matches!(self.child.try_wait(), Ok(Some(_))) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
