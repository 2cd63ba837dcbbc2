//! The two layouts of a chart, and how text fits into them.

/// Measures of a drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// Width in units of the drawing, without its margins.
    pub width: f64,
    /// Whether it is for a narrow window.
    pub narrow: bool,
    /// Width of an average letter.
    pub letter: f64,
}

impl Layout {
    /// For windows from 880 pixels on.
    pub const BROAD: Self = Self { width: 944.0, narrow: false, letter: 7.4 };
    /// For narrower windows, such as a phone's.
    pub const NARROW: Self = Self { width: 342.0, narrow: true, letter: 6.9 };

    /// Width of a text.
    pub fn text(&self, words: &str) -> f64 {
        self.letter * words.chars().count() as f64
    }

    /// The beginning of a text that fits into a width, with an ellipsis where it was shortened.
    pub fn fitting(&self, words: &str, width: f64) -> String {
        if self.text(words) <= width {
            return words.to_owned();
        }
        let letters = (width / self.letter).floor().max(2.0) as usize - 1;
        words.chars().take(letters).chain(['…']).collect()
    }

    /// The text in lines of a width. A longer word has a line of its own. No-break spaces stay.
    pub fn wrapped(&self, words: &str, width: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in words.split([' ', '\n']).filter(|word| !word.is_empty()) {
            match lines.last_mut() {
                Some(line) if self.text(line) + self.letter + self.text(word) <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_wrapped_or_shortened_to_a_width() {
        let layout = Layout { letter: 10.0, ..Layout::BROAD };
        assert_eq!(
            layout.wrapped("one two three  incomprehensible a", 80.0),
            ["one two", "three", "incomprehensible", "a"]
        );
        assert_eq!(layout.wrapped("", 80.0), Vec::<String>::new());
        assert_eq!(
            (layout.fitting("four", 40.0).as_str(), layout.fitting("fives", 40.0).as_str()),
            ("four", "fiv…")
        );
        assert_eq!(layout.fitting("any", 0.0), "a…");
    }
}
