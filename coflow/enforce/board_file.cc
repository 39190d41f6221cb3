#include "coflow/enforce/board_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace clustar::coflow::enforce {
namespace {

// Locks lie behind all content: one byte for each place, then one that is held while entering and leaving.
constexpr off_t kPlaces = off_t{1} << 20;
constexpr off_t kDoor = kPlaces + BoardState::kSlots;

struct flock range(off_t first, off_t bytes) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = bytes;
  return lock;
}

bool try_lock(int fd, off_t place) {
  struct flock lock = range(place, 1);
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void unlock(int fd, off_t place) {
  struct flock lock = range(place, 1);
  lock.l_type = F_UNLCK;
  fcntl(fd, F_OFD_SETLK, &lock);
}

// Who holds it does so for microseconds, unless it was stopped there.
bool lock_door(int fd) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (!try_lock(fd, kDoor)) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// The door, locked, until this goes.
class Opened {
 public:
  explicit Opened(int fd) : fd_(fd) {}
  ~Opened() { unlock(fd_, kDoor); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  const int fd_;
};

bool anybody_at(int fd) {
  struct flock lock = range(kPlaces, BoardState::kSlots);
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool is_file_at(int fd, const std::string& path) {
  struct stat own {
  }, there{};
  return fstat(fd, &own) == 0 && stat(path.c_str(), &there) == 0 && own.st_ino == there.st_ino &&
         own.st_dev == there.st_dev;
}

std::string path_of(const std::string& nic, const std::string& folder) {
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
  std::string name = nic;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '_';
  }
  return fmt::format("{}/clustar-board-{}-{}-{}", folder, geteuid(), network.st_ino, name);
}

}  // namespace

Result<std::unique_ptr<BoardPlace>> BoardPlace::claim(const std::string& nic, const std::string& folder) {
  std::unique_ptr<BoardPlace> place(new BoardPlace());
  place->path_ = path_of(nic, folder);
  // The last to leave may have removed the file between our open and our lock: then there is another, or none.
  for (int tries = 0; tries < 100; ++tries) {
    const auto claimed = place->try_claim();
    if (!claimed) {
      place->path_.clear();
      return tl::unexpected(claimed.error());
    }
    if (*claimed) return place;
  }
  return fail(ErrorCode::kSystem, std::exchange(place->path_, {}) + " is made and removed all the time");
}

std::unique_ptr<BoardPlace> BoardPlace::alone() {
  std::unique_ptr<BoardPlace> place(new BoardPlace());
  place->own_ = std::make_unique<BoardState>();
  place->state_ = place->own_.get();
  return place;
}

// False: the file is not there any more.
Result<bool> BoardPlace::try_claim() {
  const auto fails = [&](const std::string& what) { return fail(ErrorCode::kSystem, path_ + ": " + what); };
  FileDescriptor file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file) return fails(describe_errno(errno));
  struct stat facts {};
  if (fstat(file.fd(), &facts) != 0) return fails(describe_errno(errno));
  if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fails("is not a file of this user alone (mode 0600); remove it");
  }
  if (!lock_door(file.fd())) return fails("is held by a process that does not run");
  // A child that was forked meanwhile holds what we do not give back.
  const Opened opened(file.fd());
  if (!is_file_at(file.fd(), path_)) return false;
  constexpr off_t kBytes = sizeof(BoardState);
  if (fstat(file.fd(), &facts) != 0) return fails(describe_errno(errno));
  // Memory that cannot be had now would be SIGBUS later.
  if (facts.st_size == 0) {
    if (const int error = posix_fallocate(file.fd(), 0, kBytes); error != 0) return fails(describe_errno(error));
  } else if (facts.st_size != kBytes) {
    return fails("is of another version of clustar");
  }
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  if (memory == MAP_FAILED) return fails(describe_errno(errno));
  auto* const state = static_cast<BoardState*>(memory);  // of zeros it is one in which nobody is
  std::uint64_t magic = 0;
  bool fits = state->magic.compare_exchange_strong(magic, BoardState::kMagic) || magic == BoardState::kMagic;
  std::size_t slot = 0;
  while (fits && slot < BoardState::kSlots && !try_lock(file.fd(), kPlaces + static_cast<off_t>(slot))) ++slot;
  if (!fits || slot == BoardState::kSlots) {
    munmap(memory, kBytes);
    return fails(fits ? fmt::format("all {} places are taken", BoardState::kSlots)
                      : "is of another version of clustar");
  }
  file_ = FileDescriptor(std::move(file));
  state_ = state;
  owner_ = getpid();
  slot_ = slot;
  return true;
}

BoardPlace::~BoardPlace() {
  if (!file_) return;
  munmap(static_cast<void*>(state_), sizeof(BoardState));
  if (getpid() != owner_) return;  // a fork's copy: the place is its parent's
  const bool entered = lock_door(file_.fd());
  unlock(file_.fd(), kPlaces + static_cast<off_t>(slot_));
  if (!entered) return;
  const Opened opened(file_.fd());
  if (!anybody_at(file_.fd()) && is_file_at(file_.fd(), path_)) unlink(path_.c_str());
}

}  // namespace clustar::coflow::enforce
