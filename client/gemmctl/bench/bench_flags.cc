#include "client/gemmctl/bench/bench_options.h"
#include "client/gemmctl/flags.h"

namespace gemmd::gemmctl {
namespace {

constexpr char kBenchFooter[] =
    "Ranges: 1:64:x2 is 1, 2, 4, ..., 64; 10:50:+20 is 10, 30, 50.\n"
    "With --rate, a product's latency counts from when it should have begun.";

void AddShapes(CLI::App* app, BenchOptions* to) {
  app->add_option_function<std::string>(
         "--shape",
         [to](const std::string& text) {
           to->shapes = {ValueOrThrow("--shape", ReadShape(text))};
         },
         "One size, or m x n x k")
      ->type_name("N|MxNxK")
      ->default_str("1024");
  app->add_option_function<std::string>(
         "--shape-file",
         [to](const std::string& path) {
           to->shapes = ValueOrThrow("--shape-file", ReadShapeFile(path));
         },
         "Many shapes, drawn at random: lines of MxNxK [weight]")
      ->type_name("FILE")
      ->excludes("--shape");
  app->add_option_function<std::string>(
         "--operands",
         [to](const std::string& text) {
           for (OperandMode mode :
                {OperandMode::kInline, OperandMode::kResidentB,
                 OperandMode::kResident, OperandMode::kShared}) {
             if (text == OperandModeName(mode)) {
               to->operands = mode;
               return;
             }
           }
           throw CLI::ValidationError("--operands: \"" + text +
                                      "\" is none of inline, resident-b, "
                                      "resident, shared-memory");
         },
         "What stays on the server: inline (nothing), resident-b, resident "
         "(A, B and C), shared-memory (none, over a unix socket)")
      ->type_name("WHERE")
      ->default_str("inline");
}

void AddPace(CLI::App* app, BenchOptions* to) {
  app->add_option_function<std::string>(
         "--concurrency",
         [to](const std::string& text) {
           to->concurrency = ValueOrThrow("--concurrency", ReadSteps(text));
           if (to->concurrency.back() > 100'000) {
             throw CLI::ValidationError("--concurrency: at most 100000");
           }
         },
         "Closed loop: products in flight, or a range of them")
      ->type_name("N|RANGE")
      ->default_str("1");
  app->add_option_function<std::string>(
         "--rate",
         [to](const std::string& text) {
           to->rates = ValueOrThrow("--rate", ReadSteps(text));
         },
         "Open loop: products a second, or a range of them")
      ->type_name("R|RANGE")
      ->excludes("--concurrency");
  app->add_flag("--stream", to->stream,
                "Small products as items of a stream, not as calls");
  AddDuration(app, "--busy-poll", &to->busy_poll,
              "How long a waiting thread looks for answers before it sleeps: "
              "a core each, 1s at most");
  app->add_flag("--poisson", to->poisson,
                "With --rate: random arrivals, not evenly spaced ones")
      ->needs("--rate");
  app->add_option("--max-in-flight", to->max_in_flight,
                  "With --rate: more than that begin late")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
}

void AddLength(CLI::App* app, BenchOptions* to) {
  AddDuration(app, "--duration", &to->duration,
              "How long to measure: a window");
  app->add_option("--count", to->count, "Products to measure, not a time")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->excludes("--duration");
  AddDuration(app, "--warmup", &to->warmup, "Before measuring");
  app->add_option("--stability", to->stability,
                  "Measure windows until the rate and the p95 of the last "
                  "three agree within so many percent; 0: one window")
      ->check(CLI::Range(0.0, 100.0))
      ->excludes("--count");
  app->add_option("--max-windows", to->max_windows, "With --stability")
      ->check(CLI::Range(3, 1000))
      ->capture_default_str();
}

}  // namespace

void AddBenchFlags(CLI::App* app, CommandLine* line) {
  BenchOptions* const to = &line->bench;
  app->footer(kBenchFooter);
  AddShapes(app, to);
  AddPace(app, to);
  AddLength(app, to);
  app->add_option("--verify", to->verify,
                  "The part of the answers that is verified, 0 to 1; a wrong "
                  "one ends the bench")
      ->check(CLI::Range(0.0, 1.0));
  app->add_flag("--keep-going", to->keep_going,
                "Count errors, do not end at the first");
  app->add_flag_callback(
      "--csv", [to] { to->format = BenchFormat::kCsv; },
      "A line of CSV for each step");
  AddProductFlags(app, line, &to->transpose_a, &to->transpose_b);
}

}  // namespace gemmd::gemmctl
