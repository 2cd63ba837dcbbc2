//! Prints the table of docs/triton.md: `cargo run --release -p models --example triton_fields`.

fn main() {
    print!("{}", models::repository::fields_table());
}
