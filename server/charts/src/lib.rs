//! Charts as SVG, and the parts of HTML pages. Load reports, simulation reports, profiles and plans draw with this crate.
//!
//! Every function is pure: data in, markup out, and the same data gives the same bytes. A page has no scripts and loads
//! no other file. A chart in a page is drawn twice, for wide and for narrow windows, and the style sheet shows the one
//! that fits: text in a scaled drawing would be too small on a phone.

#![forbid(unsafe_code)]

mod axis;
mod bars;
mod chart;
mod columns;
mod devices;
mod document;
mod frame;
mod gpulets;
mod layout;
mod legend;
mod markup;
mod plot;
mod series;
mod style;
mod svg;
mod timeline;

pub use axis::Axis;
pub use bars::{Bar, Bars};
pub use chart::{Chart, element, file};
pub use columns::{Column, Columns};
pub use devices::{DeviceBox, Devices, Slot};
pub use document::{Cell, Note, document, figure, more, notes, paragraph, plain, table};
pub use gpulets::{DeviceRow, Gpulets, Span};
pub use layout::Layout;
pub use markup::{escape, number, percent};
pub use plot::{Plot, Reference};
pub use series::Series;
pub use style::{COLOURS, STYLE_SHEET};
pub use svg::Svg;
pub use timeline::{Batch, Timeline};
