//! Touching missing bytes of a pool prints one line with the location, and aborts; faults elsewhere
//! go to the previously installed handler.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use bristlecone_pm::{At, CreateOptions, Native, PoolFile, Word};

const CHILD: &str = "BRISTLECONE_BUS_CHILD";

/// Runs one test of this file again, as a child process that dies.
fn child(test: &str, path: &Path) -> Output {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, path)
        .output();
    std::fs::remove_file(path).unwrap();
    child.unwrap()
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/bristlecone-bus-{}-{name}", std::process::id()))
}

fn create(path: &Path) -> Arc<PoolFile<Native>> {
    PoolFile::create(
        path,
        &CreateOptions { max_bytes: 8 << 20, domain: None, chunk_bytes: None },
        Native::new,
    )
    .unwrap()
}

fn truncate(path: &Path, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_pool_truncated_under_us_says_where_and_aborts() {
    if let Some(path) = std::env::var_os(CHILD) {
        let path = Path::new(&path);
        let pool = create(path);
        let word = pool.at::<Word>((1 << 20) + 0x2a8);
        assert_eq!(word.load(pool.medium()), 0);
        truncate(path, 1 << 20);
        word.load(pool.medium());
        unreachable!("the byte is gone");
    }
    let path = scratch("truncated");
    let ended = child("a_pool_truncated_under_us_says_where_and_aborts", &path);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
    let line = format!(
        "bristlecone: {}: bus error at byte 0x1002a8 of the pool: \
         the file was truncated, or its medium cannot be read; aborting\n",
        path.display()
    );
    assert!(said.ends_with(&line), "{said}");
}

#[test]
fn a_fault_in_a_pool_that_leaves_them_alone_goes_to_the_programs_handler() {
    if let Some(path) = std::env::var_os(CHILD) {
        let path = Path::new(&path);
        // SAFETY: the handler is async-signal-safe.
        unsafe { libc::signal(libc::SIGBUS, earlier_handler as *const () as usize) };
        let options = CreateOptions { max_bytes: 8 << 20, domain: None, chunk_bytes: None };
        drop(PoolFile::create(At::unhandled(path), &options, Native::new).unwrap());
        drop(PoolFile::open_read_only(At::unhandled(path), Native::new).unwrap());
        let pool = PoolFile::open(At::unhandled(path), &Default::default(), Native::new).unwrap();
        truncate(path, 1 << 20);
        pool.at::<Word>((1 << 20) + 0x2a8).load(pool.medium());
        unreachable!("the byte is gone");
    }
    let name = "a_fault_in_a_pool_that_leaves_them_alone_goes_to_the_programs_handler";
    let ended = child(name, &scratch("left"));
    assert_eq!(ended.status.code(), Some(42), "{ended:?}");
}

/// Maps a file that is shorter than the mapping, outside any pool, and reads behind its end.
fn fault_elsewhere() {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let bytes = file.metadata().unwrap().len() as usize;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe {
        let (prot, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        use std::os::fd::AsRawFd;
        libc::mmap(std::ptr::null_mut(), bytes + (1 << 20), prot, flags, file.as_raw_fd(), 0)
    };
    // SAFETY: mapped above; the fault is the purpose of the test.
    unsafe { start.cast::<u8>().add(bytes + (1 << 19)).read_volatile() };
    unreachable!("there is nothing to read");
}

extern "C" fn earlier_handler(_: i32) {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(42) };
}

#[test]
fn a_fault_elsewhere_goes_to_the_handler_before() {
    if let Some(path) = std::env::var_os(CHILD) {
        // SAFETY: the handler is async-signal-safe.
        unsafe { libc::signal(libc::SIGBUS, earlier_handler as *const () as usize) };
        let _pool = create(Path::new(&path));
        fault_elsewhere();
    }
    let ended = child("a_fault_elsewhere_goes_to_the_handler_before", &scratch("elsewhere"));
    assert_eq!(ended.status.code(), Some(42), "{ended:?}");
}

#[test]
fn a_fault_elsewhere_ends_the_process_as_it_did_before() {
    if let Some(path) = std::env::var_os(CHILD) {
        drop(create(Path::new(&path)));
        fault_elsewhere();
    }
    let ended = child("a_fault_elsewhere_ends_the_process_as_it_did_before", &scratch("default"));
    assert_eq!(ended.status.signal(), Some(libc::SIGBUS), "{ended:?}");
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("bristlecone:"), "{ended:?}");
}

/// Maps a range longer than its file at the former address of the pool, in a child that has no
/// pool.
fn fault_where_the_pool_was(base: *mut libc::c_void) {
    let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: nothing is mapped at the address, or the kernel refuses.
    let mapped = unsafe {
        let file = libc::memfd_create(c"short".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, 4096), 0);
        libc::mmap(base, 8192, prot, flags, file, 0)
    };
    assert_eq!(mapped, base);
    // SAFETY: mapped above; the fault is the purpose of the test.
    unsafe { mapped.cast::<u8>().add(4096).read_volatile() };
    unreachable!("there is nothing to read");
}

#[test]
fn a_fault_of_a_child_where_its_parents_pool_is_mapped_is_not_the_pools() {
    if let Some(path) = std::env::var_os(CHILD) {
        let pool = create(Path::new(&path));
        let base = std::ptr::from_ref(pool.at::<Word>(0)).cast_mut().cast();
        // SAFETY: the child ends by a signal, or reports why it does not and is aborted.
        let child = unsafe { libc::fork() };
        if child == 0 {
            fault_where_the_pool_was(base);
        }
        let mut status = 0;
        // SAFETY: the status is a live value.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:#x}");
        return;
    }
    let name = "a_fault_of_a_child_where_its_parents_pool_is_mapped_is_not_the_pools";
    let ended = child(name, &scratch("child"));
    assert!(ended.status.success(), "{ended:?}");
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("bristlecone:"), "{ended:?}");
}
