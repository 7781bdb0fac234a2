//! Migrations are compiled in: a new one must cause a new build.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
