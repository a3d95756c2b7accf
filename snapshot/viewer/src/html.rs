//! Assembles the page from its parts and the bytes of a snapshot.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};

use base64::prelude::{BASE64_STANDARD, Engine};

const PAGE: &str = include_str!("../page/page.html");
const STYLE: &str = include_str!("../page/page.css");

/// In their order of execution: each uses those above it.
const SCRIPTS: [&str; 17] = [
    include_str!("../page/decode.js"),
    include_str!("../page/words.js"),
    include_str!("../page/elements.js"),
    include_str!("../page/colours.js"),
    include_str!("../page/device.js"),
    include_str!("../page/owners.js"),
    include_str!("../page/layers.js"),
    include_str!("../page/fragments.js"),
    include_str!("../page/axis.js"),
    include_str!("../page/timeline.js"),
    include_str!("../page/reach.js"),
    include_str!("../page/strips.js"),
    include_str!("../page/holders.js"),
    include_str!("../page/details.js"),
    include_str!("../page/figures.js"),
    include_str!("../page/pointing.js"),
    include_str!("../page/main.js"),
];

/// Writes the page around these bytes.
pub(crate) fn write(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    let nonce = nonce(bytes);
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (slot, after) = after.split_once("}}").unwrap_or((after, ""));
        out.write_all(before.as_bytes())?;
        match slot {
            "nonce" => out.write_all(nonce.as_bytes())?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "script" => SCRIPTS.iter().try_for_each(|script| out.write_all(script.as_bytes()))?,
            "data" => out.write_all(BASE64_STANDARD.encode(bytes).as_bytes())?,
            other => {
                return Err(io::Error::other(format!("the page has a slot {other} that nothing fills")));
            }
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

/// The nonce of scripts and styles, so that the browser runs nothing else on the page.
fn nonce(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_of_the_page_is_filled_once() {
        for slot in ["{{style}}", "{{script}}", "{{data}}"] {
            assert_eq!(PAGE.matches(slot).count(), 1, "{slot}");
        }
        let mut page = Vec::new();
        write(b"bytes", &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("{{"), "no slot is left");
        assert!(page.contains(">Ynl0ZXM=</script>"));
    }

    #[test]
    fn no_part_ends_the_element_it_is_in() {
        assert!(SCRIPTS.iter().all(|script| !script.contains("</script")));
        assert!(!STYLE.contains("</style"));
    }

    #[test]
    fn the_page_names_no_place_to_load_from() {
        let parts = SCRIPTS.iter().chain([&PAGE, &STYLE]);
        for part in parts {
            assert!(!part.contains("://") && !part.contains("url("));
        }
    }

    #[test]
    fn words_are_shown_as_text_alone() {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(SCRIPTS.iter().all(|script| !script.contains(word)), "{word}");
        }
    }
}
