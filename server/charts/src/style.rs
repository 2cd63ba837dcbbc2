//! The style sheet of pages and charts. It follows the reader's light or dark scheme.

/// Colours of series. Colours are also told apart by dashes and by the shape of their signs.
pub const COLOURS: usize = 14;

/// The whole style sheet, for a page with charts.
pub const STYLE_SHEET: &str = include_str!("style.css");

/// The line at which the rules of pages begin.
const PAGES: &str = "/* Pages.";

/// The rules that a chart in a file of its own needs.
pub(crate) fn of_charts() -> &'static str {
    STYLE_SHEET.split_once(PAGES).map_or(STYLE_SHEET, |(charts, _)| charts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_charts_hold_every_colour_and_no_rule_of_pages() {
        let charts = of_charts();
        assert!(charts.len() < STYLE_SHEET.len() && !charts.contains("body{"), "{charts}");
        for colour in 0..COLOURS {
            assert!(charts.contains(&format!(".f{colour}{{")) && charts.contains(&format!(".s{colour}{{")));
            assert_eq!(charts.matches(&format!("--c{colour}:")).count(), 2, "a light and a dark one");
        }
    }
}
