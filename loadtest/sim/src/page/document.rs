//! The parts that all HTML pages of Tessera share, so that they look alike.

use super::markup::escape;
use super::style;

/// A whole HTML file: its title, as plain text, also its heading, and its content, as markup. Follows the reader's
/// light or dark scheme, has no scripts and loads nothing from elsewhere.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title} - Tessera</title>\n<style>\n{}{}</style>\n\
         </head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n",
        style::PLOT,
        style::PAGE,
        title = escape(title),
    )
}

/// A plot with its heading and caption. `picture` is markup; the others are plain text.
pub fn figure(heading: &str, picture: &str, caption: &str) -> String {
    let (heading, caption) = (escape(heading), escape(caption));
    format!("<h2>{heading}</h2>\n<figure>\n{picture}<figcaption>{caption}</figcaption>\n</figure>\n")
}

/// A paragraph of plain text in a style: `soft`, `verdict` or `note`.
pub fn paragraph(class: &str, text: &str) -> String {
    format!("<p class=\"{class}\">{}</p>\n", escape(text))
}

/// A cell of a table: its style (`good`, `bad`, `strong` or none), and its text.
pub type Cell = (&'static str, String);

/// A table with a header. All text is plain.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let header: String = header.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    let rows = rows.into_iter().map(|row| {
        let cells = row.iter().map(|(class, text)| match *class {
            "" => format!("<td>{}</td>", escape(text)),
            class => format!("<td class=\"{class}\">{}</td>", escape(text)),
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    });
    let rows: String = rows.collect();
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

/// Cells without a style.
pub fn plain(cells: impl IntoIterator<Item = String>) -> Vec<Cell> {
    cells.into_iter().map(|text| ("", text)).collect()
}

/// The sentence below a list that was shortened from `all` to `shown` entries; empty if it was not.
pub fn more(all: usize, shown: usize, what: &str) -> String {
    match all.checked_sub(shown) {
        Some(more @ 1..) => paragraph("soft", &format!("and {more} more{what}")),
        _ => String::new(),
    }
}
