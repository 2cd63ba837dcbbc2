//! The frame of every HTML page of Tessera, so that all pages look alike.

use super::markup::escape;
use super::style;

/// A whole HTML file: its title, as plain text, also its heading, and its content, as markup. Follows the reader's
/// light or dark scheme, has no scripts and takes nothing from elsewhere.
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
    format!(
        "<h2>{}</h2>\n<figure>\n{picture}<figcaption>{}</figcaption>\n</figure>\n",
        escape(heading),
        escape(caption)
    )
}
