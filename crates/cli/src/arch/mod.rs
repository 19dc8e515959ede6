//! What differs from processor to processor.

#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
mod x86_64;
