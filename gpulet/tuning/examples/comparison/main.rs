//! Compares the searches on measured grids, and prints the page `docs/tuning.md`.
//!
//! ```sh
//! cargo run --release -p tuning --example comparison > docs/tuning.md
//! ```

mod data;
mod page;
mod runs;

fn main() {
    let space = data::space();
    print!("{}", page::page(&space, &data::models(&space)));
}
