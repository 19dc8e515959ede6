//! placeholder
pub struct SiteFile; pub struct Outcome; pub struct SiteFileError; pub fn file_key(){}
