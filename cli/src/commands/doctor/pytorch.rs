//! PyTorch, and which mode it would get.

use std::process::Command;

use serde::Deserialize;

use super::finding::Finding;

/// Prints the version of PyTorch where Cachette's package is not installed, or why it cannot be imported. It fails if
/// PyTorch is not installed.
const VERSION: &str = "
import importlib.util, sys
if importlib.util.find_spec('torch') is None:
    sys.exit(1)
try:
    import torch
    print(torch.__version__)
except Exception as why:
    print('installed, but cannot be imported:', why)
";

/// What `python3 -m cachette_gpu.torch --check` prints.
#[derive(Debug, Deserialize)]
struct Check {
    python: String,
    cachette: String,
    torch: Option<String>,
    mode: Option<String>,
    why: Option<String>,
}

/// What this Python would use.
pub(super) fn findings(python: &str) -> Vec<Finding> {
    let found = match Command::new(python).args(["-m", "cachette_gpu.torch", "--check"]).output() {
        Ok(output) => output,
        Err(error) => {
            let text = format!("{python} cannot be started: {error}");
            return vec![Finding::note("Python", text, "install Python 3.10 or later, or name one by --python")];
        }
    };
    match serde_json::from_slice::<Check>(&found.stdout) {
        Ok(check) => check.findings(),
        Err(_) => vec![without_package(python)],
    }
}

fn without_package(python: &str) -> Finding {
    let output = Command::new(python).args(["-c", VERSION]).output();
    let version = output.ok().filter(|output| output.status.success());
    let install = "pip install ./bindings/python, from a checkout of Cachette";
    if let Some(output) = version {
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Finding::note("PyTorch", format!("{version}; {python} has no current package cachette_gpu"), install)
    } else {
        let text = format!("{python} has neither PyTorch nor the package cachette_gpu");
        Finding::note("PyTorch", text, format!("pip install torch, then {install}"))
    }
}

impl Check {
    fn findings(self) -> Vec<Finding> {
        let package =
            Finding::ok("Python package", format!("cachette-gpu {} in Python {}", self.cachette, self.python));
        let version = self.torch.unwrap_or_default();
        // Each reason ends with what to do.
        let why = self.why.unwrap_or_default();
        let (reason, remedy) = why.rsplit_once("; ").unwrap_or((&why, "see docs/pytorch.md"));
        let pytorch = match self.mode.as_deref() {
            Some("class") => Finding::ok("PyTorch", format!("{version}; enable() replaces its allocator class")),
            Some(_) => Finding::note("PyTorch", format!("{version}; enable() plugs functions in: {reason}"), remedy),
            None => Finding::note("PyTorch", reason, remedy),
        };
        vec![package, pytorch]
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    fn finding(mode: Option<&str>, why: Option<&str>) -> Finding {
        let text = |text: &str| text.to_owned();
        let check = Check {
            python: text("3.12.1"),
            cachette: text("0.1.0"),
            torch: mode.map(|_| text("2.11.0")),
            mode: mode.map(text),
            why: why.map(text),
        };
        check.findings().remove(1)
    }

    /// A Python without the package, which says `answer` about PyTorch.
    fn without_package_says(answer: &str) -> Finding {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("python");
        std::fs::write(&path, format!("#!/bin/sh\n[ \"$1\" = -m ] && exit 1\n{answer}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        findings(path.to_str().unwrap()).remove(0)
    }

    #[test]
    fn a_pytorch_that_cannot_be_imported_is_there() {
        let broken = without_package_says("echo 'installed, but cannot be imported: libcublas.so.13'");
        assert!(broken.text.starts_with("installed, but cannot be imported: libcublas.so.13; "), "{}", broken.text);
        assert!(broken.text.ends_with("has no current package cachette_gpu"), "{}", broken.text);
        let neither = without_package_says("exit 1");
        assert!(neither.text.ends_with("has neither PyTorch nor the package cachette_gpu"), "{}", neither.text);
    }

    #[test]
    fn the_class_is_fine_and_all_else_has_its_remedy() {
        assert_eq!(finding(Some("class"), None).status, Status::Ok);
        let plugged = finding(Some("plug-in"), Some("there is no C++ compiler (c++); install g++ 11 or later"));
        assert_eq!(plugged.text, "2.11.0; enable() plugs functions in: there is no C++ compiler (c++)");
        assert_eq!(plugged.remedy.as_deref(), Some("install g++ 11 or later"));
        let absent = finding(None, Some("PyTorch cannot be imported; install it: pip install torch"));
        assert_eq!(absent.remedy.as_deref(), Some("install it: pip install torch"));
    }
}
