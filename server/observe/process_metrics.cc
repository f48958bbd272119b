#include "server/observe/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace gemmd {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Family(const char* name, const char* help, MetricType type,
                    double value) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  ClientMetric metric;
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(metric);
  return family;
}

// Of /proc/self/stat, by the numbers of proc(5).
struct Stat {
  double cpu_ticks = 0;       // fields 14 and 15
  double start_ticks = 0;     // field 22, since boot
  double virtual_bytes = 0;   // field 23
  double resident_pages = 0;  // field 24
};

std::optional<Stat> ReadStat() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The second field is the program's name in parentheses and may hold spaces.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  Stat stat;
  std::string field;
  for (int number = 3; number <= 24; ++number) {
    if (!(rest >> field)) return std::nullopt;
    if (number == 14 || number == 15) stat.cpu_ticks += std::stod(field);
    if (number == 22) stat.start_ticks = std::stod(field);
    if (number == 23) stat.virtual_bytes = std::stod(field);
    if (number == 24) stat.resident_pages = std::stod(field);
  }
  return stat;
}

std::optional<double> BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  std::string key;
  while (file >> key) {
    double value = 0;
    if (key == "btime" && file >> value) return value;
    file.ignore(1 << 20, '\n');
  }
  return std::nullopt;
}

std::optional<double> OpenFileDescriptors() {
  DIR* dir = opendir("/proc/self/fd");
  if (dir == nullptr) return std::nullopt;
  double count = 0;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(dir);
  return count - 1;  // not the directory itself
}

}  // namespace

std::vector<MetricFamily> ProcessMetrics::Collect() const {
  std::vector<MetricFamily> families;
  const auto add = [&](const char* name, const char* help, double value,
                       MetricType type = MetricType::Gauge) {
    families.push_back(Family(name, help, type, value));
  };
  if (const auto stat = ReadStat()) {
    const double ticks = sysconf(_SC_CLK_TCK);
    add("process_cpu_seconds_total", "User and system CPU time.",
        stat->cpu_ticks / ticks, MetricType::Counter);
    add("process_virtual_memory_bytes", "Virtual memory size.",
        stat->virtual_bytes);
    add("process_resident_memory_bytes", "Resident memory size.",
        stat->resident_pages * sysconf(_SC_PAGESIZE));
    if (const auto boot = BootTimeSeconds()) {
      add("process_start_time_seconds", "Start time since the Unix epoch.",
          *boot + stat->start_ticks / ticks);
    }
  }
  if (const auto fds = OpenFileDescriptors()) {
    add("process_open_fds", "Open file descriptors.", *fds);
  }
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    add("process_max_fds", "File descriptors allowed.",
        static_cast<double>(limit.rlim_cur));
  }
  return families;
}

}  // namespace gemmd
