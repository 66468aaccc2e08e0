# Moonlet's build. `make` builds, `make demo` and `make check` also set up what is missing.
#   CC=clang-14      another compiler          B=build-x    another output folder
#   SAN=1            AddressSanitizer and UBSan, in build-san; with CC=clang-14 also what the fuzzers link
#   KERNELS_FROM=build  takes the kernels' objects out of a finished build; gcc's suit clang too, whose OpenMP runtime
#       answers to the names that gcc calls
#   TIMES=1          kernels that write down when their blocks ran (moonlet profile --timeline), in build-times
#   NVCC=/path/nvcc  another compiler for the GPU's kernels; NVCC=none builds without them
# No configure step: the libraries are found with pkg-config; tools/setup names what is missing.
comma   := ,
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
B       ?= $(if $(SAN),build-san,$(if $(TIMES),build-times,build))
GPU     := $(if $(TIMES),build-times,build)/gpu
PREFIX  ?= /usr/local
VERSION := $(shell cat VERSION)

ifneq ($(words $B),1)
$(error B=$B: the output folder needs a name without spaces)
endif

PKGS    := jansson libmicrohttpd libcurl zlib libjpeg libpng libwebpdemux
GOALS   := $(or $(MAKECMDGOALS),all)
NEEDS   := $(filter-out setup demo check check-all clean format lint,$(GOALS))
ifneq ($(NEEDS),)
MISSING := $(shell tools/setup -n $(if $(filter tests $B/tests/test_%,$(NEEDS)),check,build) 2>&1)
ifneq ($(MISSING),)
$(error $(MISSING), or run tools/setup as root)
endif
endif

WARN    := -Wall -Wextra -Werror -Wstrict-prototypes -Wmissing-prototypes -Wvla
WARN    += $(if $(findstring clang,$(CC)),,-Wshadow=local)
CFLAGS  ?= -O2 -g
ALL_CFLAGS := -std=gnu17 $(WARN) $(CFLAGS) -ffp-contract=off -fno-math-errno -fno-omit-frame-pointer -fopenmp \
	-I. -Isrc -Iinclude -D_GNU_SOURCE -DMOON_VERSION='"$(VERSION)"' $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
ifdef SAN
ALL_CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=all
COVER   := $(if $(findstring clang,$(CC)),-fsanitize=fuzzer-no-link)
endif

# The archive of a package where the distribution ships one, so that the program runs without the package.
LIBDIRS := $(shell $(CC) -print-search-dirs 2>/dev/null | sed -n 's/^libraries: =//p' | tr ':' ' ') /usr/lib/x86_64-linux-gnu
static_or = $(firstword $(foreach d,$(LIBDIRS),$(wildcard $(d)/lib$(1).a)) -l$(1))
IS_CLANG := $(findstring clang,$(CC))
OMP_LIB := $(if $(IS_CLANG),-fopenmp,$(firstword $(wildcard $(shell $(CC) -print-file-name=libgomp.a 2>/dev/null)) -fopenmp))
LDLIBS  := $(foreach l,jansson microhttpd jpeg png16 webpdemux webp gif z,$(call static_or,$l)) $(OMP_LIB) -lm -lpthread -ldl
LDFLAGS += $(if $(SAN),-fsanitize=address$(comma)undefined) $(if $(IS_CLANG),,-static-libgcc)
# The GPU's kernels: compiled where there is an nvcc and part of the program, which runs without a GPU too (docs/guide/gpu.md).
# They do not depend on B, CC and CFLAGS: all builds share build/gpu, but for TIMES=1.
ifneq ($(NEEDS),)
NVCC_IS := $(shell NVCC='$(NVCC)' tools/find-nvcc)
ifneq ($(filter-out none,$(NVCC)),)
ifeq ($(firstword $(NVCC_IS)),-)
$(error $(wordlist 2,99,$(NVCC_IS)))
endif
endif
endif
GPU_CC  := $(filter-out -,$(firstword $(NVCC_IS)))
GPU_VER := $(if $(GPU_CC),$(lastword $(NVCC_IS)))
CU      := $(sort $(wildcard src/kernels/gpu/*/*.cu))
CUBIN   := $(if $(GPU_CC),$(CU:src/kernels/gpu/%.cu=$(GPU)/%.cubin))
NVFLAGS := -cubin -gencode=arch=compute_90a,code=sm_90a -O3 --std=c++17 -Isrc -Werror all-warnings \
	$(if $(TIMES),-DBLOCK_TIMES,-Xptxas -warn-spills$(comma)-warn-lmem-usage)
# In the program they lie compressed, in the container that the driver unpacks itself; nvcc before 13 knows one way to compress.
FATBIN  := $(CUBIN:.cubin=.fatbin)
PACK    := -fatbin -gencode=arch=compute_90a,code=sm_90a $(if $(filter 12.%,$(GPU_VER)),-Xfatbin=-compress-all,-compress-mode=size)
BUILT_FOR := gpu: $(if $(GPU_CC),sm_90a$(comma) nvcc $(GPU_VER),none ($(wordlist 2,99,$(NVCC_IS))))

ROOMS   := base format text text/grammar media device kernels/ref kernels/cpu kernels/gpu $(patsubst src/%/,%,$(wildcard src/kernels/gpu/*/)) kernels/sampling kernels model runtime api server $(patsubst src/%/,%,$(filter-out %/page/,$(wildcard src/server/*/)))
SRC     := $(foreach r,$(ROOMS),$(wildcard src/$(r)/*.c))
OBJ     := $(SRC:%.c=$B/%.o)
CMD     := $(wildcard cmd/*.c cmd/*/*.c cmd/*/*/*.c)
CMD_OBJ := $(CMD:%.c=$B/%.o)
TESTS   := $(patsubst tests/%.c,$B/tests/%,$(wildcard tests/unit/*/test_*.c))
EXAMPLES := $(patsubst %.c,$B/%,$(wildcard examples/*.c))
LIB     := $B/libmoonlet.a

# moonlet-video decodes videos, in a process of its own, with FFmpeg's libraries; where their headers are not, there is none.
VIDEO_PKGS := libavformat libavcodec libswscale libavutil
ifneq ($(NEEDS),)
VIDEO_HAS := $(shell pkg-config --modversion libavcodec 2>/dev/null && pkg-config --exists $(VIDEO_PKGS) && echo yes)
endif
VIDEO   := $(if $(filter yes,$(VIDEO_HAS)),$B/moonlet-video)
VIDEO_OBJ := $(patsubst %.c,$B/%.o,$(wildcard video/*.c))

# moonlet-mpi.so joins the processes of several hosts by the distribution's MPI (--nnodes); where that is not, there is none.
ifneq ($(NEEDS),)
MPI_HAS := $(shell pkg-config --modversion ompi-c 2>/dev/null)
endif
MPI     := $(if $(MPI_HAS),$B/moonlet-mpi.so)

.PHONY: FORCE cubins all setup demo check check-all unit pytest lint format install dist clean examples
all: $B/moonlet $(VIDEO) $(MPI) $(if $(SAN),$B/moonlet-watched)
	@echo "  $(BUILT_FOR)"
	@echo "  video: $(if $(VIDEO),libavcodec $(firstword $(VIDEO_HAS)),none ($(VIDEO_PKGS:%=%-dev) are missing; tools/setup video installs them))"
	@echo "  mpi: $(if $(MPI),Open MPI $(MPI_HAS),none (libopenmpi-dev is missing; tools/setup mpi installs it))"

# Under sanitizers kernels, and what widens weights for them, are built twice: unwatched in the library, since a model's
# arithmetic under them takes most of the time of all tests, and watched below $B/watched, for what holds every kernel
# against its reference: `check` of moonlet-watched, and the unit tests of kernels.
KERNELS := $(filter $B/src/kernels/ref/%.o $B/src/kernels/cpu/%.o $B/src/format/weights.o,$(OBJ))
WATCHED := $(if $(SAN),$(KERNELS:$B/%=$B/watched/%))

# Instruction sets get flags of their own; everything else is baseline x86-64 and runs anywhere.
define ISA_RULES
$1/src/kernels/cpu/avx2%.o: ISA := -mavx2 -mfma -mf16c
$1/src/kernels/cpu/avx2vnni%.o: ISA += -mavxvnni
$1/src/media/resize_avx2.o: ISA := -mavx2
$1/src/kernels/cpu/avx512%.o: ISA := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq
$1/src/kernels/cpu/avx512vnni%.o: ISA += -mavx512vnni
$1/src/kernels/cpu/avx512bf16%.o: ISA += -mavx512bf16
$1/src/kernels/cpu/avx512amx%.o: ISA += -mavx512bf16 -mavx512vnni -mamx-tile -mamx-bf16 -mamx-int8
endef
$(foreach dir,$B $(if $(SAN),$B/watched),$(eval $(call ISA_RULES,$(dir))))
# What computes. Watched without two checks a pointer, which cost half of the time: ASan stops at what such a pointer
# reads. Fuzzers look for paths through parsers: no counters here, nor in the rooms behind them. Threads that compute have barriers of OpenMP's runtime,
# which ThreadSanitizer does not know.
ARITHMETIC := $(addprefix $B/src/format/,requant.o encode.o gptq.o quantize.o dtype.o) $B/src/media/resize%.o $B/src/media/grid.o $B/src/kernels/sampling/%.o $B/src/text/bpe.o $B/cmd/lib/synthetic.o
UNFUZZED := $B/cmd/%.o $B/src/api/%.o $(patsubst %.c,$B/%.o,$(filter-out src/runtime/step_wire.c,$(wildcard src/runtime/*.c)))
$(ARITHMETIC) $(WATCHED): OPT := -O3 $(if $(SAN),-DSANITIZED -fno-sanitize=pointer-overflow$(comma)null)
$(KERNELS): OPT := -O3 $(if $(findstring -fsanitize,$(ALL_CFLAGS)),-fno-sanitize=all)
$(ARITHMETIC) $(KERNELS) $(WATCHED) $(UNFUZZED): COVER :=
# The product of two float32 is exact in float64: a multiplication with an addition in one rounds as the two do.
$B/src/kernels/ref/linear.o $B/watched/src/kernels/ref/linear.o: ISA := -ffp-contract=fast
# Comparisons into vectors, three times as fast; no value depends on it.
$B/src/format/encode.o: ISA := -fno-trapping-math

# Another compiler, other flags or another VERSION: everything is built anew.
FLAGS := $(strip $(subst ',,$(CC) $(ALL_CFLAGS) $(COVER) $(LDFLAGS) $(LDLIBS)))
ifneq '$(FLAGS)' '$(file <$B/flags)'
$B/flags: FORCE
endif
$B/flags:
	@mkdir -p $(@D)
	@echo '$(FLAGS)' >$@
FORCE:

define COMPILE
	@mkdir -p $(@D)
	@echo "  CC  $<"; $(CC) $(ALL_CFLAGS) $(COVER) $(OPT) $(ISA) -MMD -MP -c -o $@ $<
endef
$B/%.o: %.c Makefile $B/flags
	$(COMPILE)
$B/watched/%.o: %.c Makefile $B/flags
	$(COMPILE)
ifdef KERNELS_FROM
$(KERNELS): $B/%: $(KERNELS_FROM)/%
	@mkdir -p $(@D)
	@cp $< $@
endif

# Kernels: another nvcc, other flags, another list of files.
GPU_FLAGS := $(strip $(GPU_CC) $(GPU_VER) $(NVFLAGS))
ifneq '$(GPU_FLAGS)' '$(file <$(GPU)/flags)'
ifneq (,$(or $(GPU_CC),$(if $(wildcard $(GPU)/flags),,none))) # a build without nvcc leaves kernels alone that are there
$(GPU)/flags: FORCE
endif
endif
$(GPU)/flags:
	@mkdir -p $(@D)
	@echo '$(GPU_FLAGS)' >$@
$(GPU)/%.cubin: src/kernels/gpu/%.cu Makefile $(GPU)/flags
	@mkdir -p $(@D)
	@echo "  NV  $<"; $(GPU_CC) $(NVFLAGS) -MMD -MP -MF $(@:.cubin=.d) -o $@ $<
$(GPU)/%.fatbin: $(GPU)/%.cubin
	@$(GPU_CC) $(PACK) -o $@ $<

# The program knows its kernels by name, and which driver runs what this nvcc makes: one of the same major version.
ifneq '$(CUBIN)' '$(file <$B/images)'
$B/images: FORCE
endif
$B/images:
	@mkdir -p $(@D)
	@echo '$(CUBIN)' >$@
$B/src/kernels/gpu/images.o: $(FATBIN) $B/images
$B/src/kernels/gpu/images.o: ISA := $(if $(FATBIN),-DGPU_IMAGE_DIR='"$(GPU)"' \
	'-DGPU_IMAGES(X)=$(patsubst $(GPU)/%.fatbin,X(%),$(FATBIN))')
$B/src/device/gpu.o: $(GPU)/flags
$B/src/device/gpu.o: ISA := $(if $(GPU_CC),-DGPU_DRIVER_MIN=$(firstword $(subst ., ,$(GPU_VER)))000)

# the web page's files are part of the program
$B/src/server/page.o: $(wildcard src/server/page/*)

# only the GPU's kernels
cubins: $(CUBIN)
	@echo "  $(BUILT_FOR), $(words $(CUBIN)) of $(words $(CU)) kernel files"

$(LIB): $(OBJ)
	@rm -f $@
	@ar rcs $@ $(OBJ)

$B/moonlet: $(CMD_OBJ) $(LIB)
	@echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $(CMD_OBJ) $(LIB) $(LDLIBS)

$B/moonlet-watched: $(CMD_OBJ) $(WATCHED) $(LIB)
	@echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(VIDEO_OBJ): ISA := $(if $(VIDEO),$(shell pkg-config --cflags $(VIDEO_PKGS) 2>/dev/null)) $(if $(SAN),-DSANITIZED)
$B/moonlet-video: $(VIDEO_OBJ)
	@echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(shell pkg-config --libs $(VIDEO_PKGS) 2>/dev/null) -lm

$B/moonlet-mpi.so: mpi/plugin.c src/device/mpi_plugin.h src/base/types.h Makefile $B/flags
	@echo "  LD  $@"; $(CC) -std=gnu17 $(WARN) $(CFLAGS) -Isrc -shared -fPIC $(shell pkg-config --cflags ompi-c 2>/dev/null) -o $@ $< \
		$(shell pkg-config --libs ompi-c 2>/dev/null)

# The weights of the golden checkpoints are drawn, not stored: the same bytes from every compiler and on every processor,
# so that all builds share build/golden, several at once too: files appear whole. tests/golden/sha256 has their checksums.
build/golden/draw: tests/golden/draw_checkpoints.c src/runtime/philox.h src/base/types.h Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"; $(CC) -std=gnu17 $(WARN) -O2 -ffp-contract=off -Isrc -D_GNU_SOURCE $(shell pkg-config --cflags jansson 2>/dev/null) \
		-o $@.$$$$ $< $(call static_or,jansson) -lm && mv $@.$$$$ $@
build/golden/drawn: build/golden/draw $(wildcard tests/golden/*/config.json)
	@echo "  DRAW build/golden"; $< tests/golden build/golden && touch $@
.PHONY: golden
golden: build/golden/drawn

$B/tests/%: tests/%.c $(LIB) Makefile $B/flags | build/golden/drawn
	@mkdir -p $(@D)
	@echo "  CC  $<"; $(CC) $(ALL_CFLAGS) $(ISA) -Itests/lib -Itests/unit -MMD -MP -o $@ $< $(filter $(WATCHED),$^) $(LIB) $(LDFLAGS) $(LDLIBS) -lcmocka

$B/tests/unit/api/test_nomem $B/tests/unit/runtime/test_sched_nomem: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap

$(filter $B/tests/unit/kernels/%,$(TESTS)): $(WATCHED)
$(filter $B/tests/unit/format/%,$(TESTS)): $(filter %/weights.o,$(WATCHED))

$B/tests/unit/media/test_video: | $(VIDEO)

$B/tests/unit/media/test_pictures_nomem: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

$B/tests/unit/runtime/test_pool: LDFLAGS += -Wl,--wrap=fopen

$B/tests/unit/runtime/test_draft_pipeline: LDFLAGS += -Wl,--wrap=now_s,--wrap=ranks_collect

$B/tests/unit/format/test_weight_reader $B/tests/unit/runtime/test_load $B/tests/emulator/gpu_loading: LDFLAGS += -Wl,--wrap=pread

# A driver in host memory for test_gpu: whole, without an optional function, without a needed one.
FAKES := $(addprefix $B/tests/unit/device/,libcuda.so.1 libcuda_old.so libcuda_short.so)
$B/tests/unit/device/libcuda%: tests/unit/device/fake_driver.c tests/unit/device/fake_driver.h src/device/cuda_symbols.h Makefile $B/flags
	@mkdir -p $(@D)
	@echo "  CC  $@"; $(CC) $(ALL_CFLAGS) $(if $(findstring old,$@),-DFAKE_OLD) $(if $(findstring short,$@),-DFAKE_SHORT) \
		-Wno-missing-prototypes -Itests/unit/device -fPIC -shared -o $@ $< $(if $(SAN),-fsanitize=address$(comma)undefined)
$B/tests/unit/device/test_gpu: | $(FAKES)
$B/tests/unit/device/libfake_cublas.so: tests/unit/device/fake_cublas.c tests/unit/device/fake_cublas.h src/device/cublas_symbols.h Makefile $B/flags
	@mkdir -p $(@D)
	@echo "  CC  $@"; $(CC) $(ALL_CFLAGS) -Wno-missing-prototypes -Itests/unit/device -fPIC -shared -o $@ $< $(if $(SAN),-fsanitize=address$(comma)undefined)
$B/tests/unit/device/test_cublas: | $B/tests/unit/device/libfake_cublas.so
$B/tests/unit/device/test_gpu $B/tests/unit/device/test_cublas: ISA := -Itests/unit/device
# the toolkit's headers, of the compiler that is used
CUDA_H := $(firstword $(wildcard $(addsuffix /../include,$(dir $(GPU_CC) $(realpath $(GPU_CC)))) /usr/local/cuda/include))
HEADER_TESTS := $(addprefix $B/tests/unit/,device/test_cuda_h device/test_cublas_h device/test_nccl_h cmd/test_cupti_h)
$(HEADER_TESTS): $(GPU)/flags
$(HEADER_TESTS): ISA := $(if $(CUDA_H),-isystem $(CUDA_H))

# The GPU's kernels as C++ for this processor, and a driver that runs them: what check-all holds them against ref with.
EMULATOR := $(patsubst %,$B/tests/emulator/%.o,driver blocks products)
EMULATED := $(CU:src/kernels/gpu/%.cu=$B/tests/emulator/%.o) $(EMULATOR)
# a multiplication with an addition is fmaf(), where there is an instruction for it no call; none that is not written so
CXX_ISA  := $(if $(shell grep -m1 ' fma .* avx2 ' /proc/cpuinfo 2>/dev/null),-mavx2 -mfma -mf16c) -ffp-contract=off
CXX_GPU  := g++ -std=gnu++17 -mtls-dialect=gnu2 -O2 $(CXX_ISA) -g -Wall -Wextra -Werror -Wno-unknown-pragmas -fno-strict-aliasing -fopenmp -fPIC -Isrc -MMD -MP
$B/tests/emulator/%.o: src/kernels/gpu/%.cu tests/emulator/emulate.h Makefile
	@mkdir -p $(@D)
	@echo "  CXX $<"; $(CXX_GPU) -include tests/emulator/emulate.h -x c++ -c -o $@ $<
$(EMULATOR): $B/tests/emulator/%.o: tests/emulator/%.cc tests/emulator/blocks.h tests/emulator/emulate.h Makefile
	@mkdir -p $(@D)
	@echo "  CXX $<"; $(CXX_GPU) -O3 -c -o $@ $<
$B/tests/emulator/libcuda.so.1: $(EMULATED)
	@echo "  LD  $@"; g++ -shared -fopenmp -o $@ $^ -ldl
$B/tests/emulator/libfake_nccl.so: tests/emulator/fake_nccl.cc src/device/nccl_symbols.h Makefile
	@mkdir -p $(@D)
	@echo "  CXX $<"; $(CXX_GPU) -shared -o $@ $< -ldl
$B/tests/emulator/libfake_cupti.so: tests/emulator/fake_cupti.cc cmd/lib/cupti_symbols.h Makefile
	@mkdir -p $(@D)
	@echo "  CXX $<"; $(CXX_GPU) -I. -shared -o $@ $< -ldl
$B/tests/emulator/test_hopper.o: tests/emulator/test_hopper.cu tests/emulator/emulate.h $(wildcard src/kernels/gpu/device/*.cuh) Makefile
	@mkdir -p $(@D)
	@echo "  CXX $<"; $(CXX_GPU) -Wno-misleading-indentation -Wno-dangling-else -include tests/emulator/emulate.h -x c++ -c -o $@ $<
$B/tests/emulator/test_hopper: $B/tests/emulator/test_hopper.o $(EMULATOR)
	@echo "  LD  $@"; g++ -fopenmp -o $@ $^ -ldl
# The kernel files that need nothing of Hopper's own, for AMD's GPUs: nothing runs them yet, CI sees that they compile and link.
AMD_CC    := clang-22
AMD_FLAGS := -x hip --cuda-device-only -nogpulib -nogpuinc --no-gpu-bundle-output -std=c++17 -O3 -Wall -Wextra -Werror -Isrc
AMD_FILES := rows/rows rows/gate rows/sample rows/logprobs rows/beams gemm/generic mla/generic heads/heads vision/rows moe/sort moe/generic moe/tiles moe/quantize_rows weights/repack weights/requant
AMD_CHIPS := gfx942 gfx950
AMD       := $(foreach chip,$(AMD_CHIPS),$(patsubst %,build/amd/$(chip)/%.co,$(AMD_FILES)))
define AMD_RULE
build/amd/$1/%.co: src/kernels/gpu/%.cu tests/gpu/amd.h src/kernels/sampling/sample_weight.h $$(wildcard src/kernels/gpu/*/*.cuh) src/kernels/gpu/params.h Makefile
	@mkdir -p $$(@D)
	@echo "  AMD $$*.cu for $1"; $$(AMD_CC) $$(AMD_FLAGS) --offload-arch=$1 -include tests/gpu/amd.h -c $$< -o $$@
endef
$(foreach chip,$(AMD_CHIPS),$(eval $(call AMD_RULE,$(chip))))
.PHONY: amd
amd: $(AMD)
	@echo "amd: $(AMD_CHIPS), $(words $(AMD)) of $(words $(AMD)) kernel files"

.PHONY: emulator
emulator: $B/tests/emulator/libcuda.so.1 $B/tests/emulator/test_hopper $B/tests/emulator/several_gpus $B/tests/emulator/gpu_exchanges $B/tests/emulator/gpu_ranks $B/tests/emulator/gpu_loading $B/tests/emulator/libfake_nccl.so $B/tests/emulator/libfake_cupti.so build/golden/drawn

$B/tests/fuzz/%: tests/fuzz/%.c $(LIB) Makefile $B/flags
	@mkdir -p $(@D)
	@echo "  CC  $<"; $(CC) $(ALL_CFLAGS) $(ISA) -fsanitize=fuzzer -MMD -MP -o $@ $< $(LIB) $(LDFLAGS) $(LDLIBS)

# with FFmpeg's libraries as they are; the sources of moonlet-video are part of it
$B/tests/fuzz/fuzz_video: $(wildcard video/*.[ch])
$B/tests/fuzz/fuzz_video: ISA := $(if $(VIDEO),$(shell pkg-config --cflags $(VIDEO_PKGS) 2>/dev/null))
$B/tests/fuzz/fuzz_video: LDLIBS += $(if $(VIDEO),$(shell pkg-config --libs $(VIDEO_PKGS) 2>/dev/null))

$B/examples/%: examples/%.c $(LIB) include/moonlet.h Makefile $B/flags
	@mkdir -p $(@D)
	@echo "  CC  $<"; $(CC) -std=c11 -Wall -Wextra -Werror -Iinclude -o $@ $< $(LIB) $(LDFLAGS) $(LDLIBS)
examples: $(EXAMPLES)

# as many jobs as there are processors, unless -j says otherwise
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

setup:
	@tools/setup check

demo:
	@tools/setup build
	@$(MAKE) --no-print-directory $(JOBS) all
	@tools/demo $B/moonlet

check: setup
	@$(MAKE) --no-print-directory $(JOBS) all tests examples
	@python3 tools/suite.py check --build $B

check-all:
	@tools/setup all
	@$(MAKE) --no-print-directory $(JOBS) all
	@python3 tools/suite.py all

# Each level of instruction sets that this processor has: minutes; check-all has most of it, level by level.
.PHONY: levels
levels: all $B/tests/unit/model/test_golden
	@tools/levels $B

.PHONY: tests fuzzers
tests: $(TESTS)
fuzzers: $(patsubst tests/%.c,$B/tests/%,$(wildcard tests/fuzz/fuzz_*.c))

lint:
	@python3 tools/lint.py

format:
	@clang-format-14 -i $(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cc')
	@black --quiet $(shell git ls-files '*.py') tools/clients

install: all
	install -D $B/moonlet "$(DESTDIR)$(PREFIX)/bin/moonlet"
	$(if $(VIDEO),install -D $(VIDEO) "$(DESTDIR)$(PREFIX)/bin/moonlet-video")
	$(if $(MPI),install -D $(MPI) "$(DESTDIR)$(PREFIX)/lib/moonlet/moonlet-mpi.so")
	install -D -m644 $(LIB) "$(DESTDIR)$(PREFIX)/lib/libmoonlet.a"
	install -D -m644 include/moonlet.h "$(DESTDIR)$(PREFIX)/include/moonlet.h"
	mkdir -p "$(DESTDIR)$(PREFIX)/share/moonlet" && cp -r models/nano models/nano-eagle3 tuned "$(DESTDIR)$(PREFIX)/share/moonlet/"

dist: all
	@tools/dist $B

clean:
	rm -rf build build-*

-include $(OBJ:.o=.d) $(WATCHED:.o=.d) $(CMD_OBJ:.o=.d) $(VIDEO_OBJ:.o=.d) $(CUBIN:.cubin=.d) $(wildcard $B/tests/*/*.d $B/tests/*/*/*.d)
