//! Round numbers for the axis of a chart.

/// Numbers from 0 up in steps of 1, 2 or 5 times a power of ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    /// The unit of the numbers.
    pub(super) unit: u64,
    /// The name of the unit.
    pub(super) name: &'static str,
    /// The distance of two marks, in units.
    pub(super) step: f64,
    /// The number of the last mark, which is at least the largest shown value.
    pub(super) marks: u32,
}

const UNITS: [(u64, &str); 4] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")];

impl Axis {
    /// Returns an axis for bytes up to `most`, with about `marks` marks.
    pub(super) fn bytes(most: u64, marks: u32) -> Self {
        let (unit, name) = UNITS.into_iter().find(|(unit, _)| most >= *unit).unwrap_or((1, "bytes"));
        Self::new(most, marks, unit, name)
    }

    /// Returns an axis for a count up to `most`.
    pub(super) fn count(most: u64, marks: u32) -> Self {
        Self::new(most, marks, 1, "")
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a picture has a few thousand points"
    )]
    fn new(most: u64, marks: u32, unit: u64, name: &'static str) -> Self {
        let most = (most as f64 / unit as f64).max(f64::MIN_POSITIVE);
        let rough = most / f64::from(marks);
        let power = 10_f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0);
        // An axis of single items has no fractional marks.
        let step = if unit == 1 { (factor * power).max(1.0) } else { factor * power };
        Self { unit, name, step, marks: (most / step - 1e-9).ceil().max(1.0) as u32 }
    }

    /// Returns the marks: their position as a fraction of the axis, and their text.
    pub(super) fn all(self) -> impl Iterator<Item = (f64, String)> {
        (0..=self.marks).map(move |mark| {
            let at = f64::from(mark) / f64::from(self.marks);
            (at, self.text(f64::from(mark) * self.step))
        })
    }

    fn text(self, number: f64) -> String {
        // As many decimals as the step has.
        let digits = (-self.step.log10()).ceil().max(0.0);
        let digits = if digits > 2.5 {
            3
        } else if digits > 1.5 {
            2
        } else {
            usize::from(digits > 0.5)
        };
        let text = grouped(&format!("{number:.digits$}"));
        if self.name.is_empty() { text } else { format!("{text} {}", self.name) }
    }

    /// The length of the axis, in measured units.
    #[expect(clippy::cast_precision_loss, reason = "a picture has a few thousand points")]
    pub(super) fn length(self) -> f64 {
        f64::from(self.marks) * self.step * self.unit as f64
    }
}

/// Groups digits by three.
pub(super) fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: Axis) -> Vec<String> {
        axis.all().map(|(_, text)| text).collect()
    }

    #[test]
    fn marks_are_round_and_reach_beyond_the_most() {
        let axis = Axis::bytes(18 << 30, 5);
        assert_eq!(texts(axis)[..2], ["0 GiB", "5 GiB"]);
        assert_eq!(axis.marks, 4);
        assert_eq!(texts(Axis::bytes(3 << 19, 4))[1], "0.5 MiB");
        assert_eq!(texts(Axis::bytes(0, 4)), ["0 bytes", "1 bytes"]);
        let count = texts(Axis::count(123_456, 6));
        assert_eq!(count[1..3], ["50,000", "100,000"]);
        assert_eq!(texts(Axis::count(3, 6)), ["0", "1", "2", "3"]);
    }

    #[test]
    fn digits_come_in_threes() {
        assert_eq!(grouped("1234567"), "1,234,567");
        assert_eq!(grouped("123.45"), "123.45");
        assert_eq!(grouped("0"), "0");
    }
}
