//! Links libcairn.a from the folder $CAIRN_LIB_DIR.

fn main() {
    println!("cargo:rerun-if-env-changed=CAIRN_LIB_DIR");
    let folder = std::env::var("CAIRN_LIB_DIR")
        .expect("CAIRN_LIB_DIR is not set; set it to the folder of libcairn.a");
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=static=cairn");
}
