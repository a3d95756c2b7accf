//! The variables that configure Cachette.

use std::env;

use cachette::Config;

use super::finding::Finding;

/// The levels of the log.
const LEVELS: [&str; 3] = ["", "warn", "info"];

pub(super) fn findings() -> Vec<Finding> {
    let level = env::var_os("CACHETTE_LOG").unwrap_or_default();
    let level = level.to_string_lossy();
    let log = (!LEVELS.contains(&&*level)).then(|| {
        Finding::note("log", format!("CACHETTE_LOG is '{level}', so there is no log"), "use warn or info, or unset it")
    });
    [configuration()].into_iter().chain(log).collect()
}

fn configuration() -> Finding {
    const TOPIC: &str = "configuration";
    match Config::from_env_known() {
        Err(error) => Finding::broken(TOPIC, error.to_string(), "correct or unset the variable"),
        Ok((config, skipped)) if skipped.is_empty() => {
            let text = config.to_string();
            Finding::ok(TOPIC, if text.is_empty() { "the defaults".to_owned() } else { text })
        }
        Ok((_, skipped)) => {
            let text: Vec<_> = skipped.iter().map(ToString::to_string).collect();
            Finding::note(TOPIC, format!("ignored: {}", text.join("; ")), "no action needed")
        }
    }
}
