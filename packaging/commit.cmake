# Writes the commit that is built into OUTPUT, which stays as it is while the commit does: then nothing is linked again.
# In this order: GIVEN (-DCLUSTAR_COMMIT=...), git, what `git archive` wrote into a tarball, otherwise none.
#   cmake -DSOURCE=<folder> -DOUTPUT=<file.cc> -DVERSION=<x.y.z> [-DGIVEN=<commit>] -P packaging/commit.cmake

function(ask_git result)
  execute_process(COMMAND git --no-optional-locks -c "safe.directory=*" -C ${SOURCE} ${ARGN}
                  OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    set(text "")
  endif()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

set(commit "${GIVEN}")
# A tarball may lie in somebody else's repository: only a checkout of our own counts.
if(NOT commit AND EXISTS ${SOURCE}/.git)
  ask_git(commit rev-parse --short=12 HEAD)
  if(commit)
    ask_git(changes status --porcelain --untracked-files=no)
    if(changes)
      string(APPEND commit ", changed")
    endif()
  endif()
endif()
if(NOT commit AND EXISTS ${SOURCE}/packaging/archive_commit.txt)
  file(STRINGS ${SOURCE}/packaging/archive_commit.txt archived LIMIT_COUNT 1)
  string(REGEX MATCH "^[0-9a-f]+" commit "${archived}")
  string(SUBSTRING "${commit}" 0 12 commit)
endif()
if(NOT commit MATCHES "^([0-9a-f]+(, changed)?)?$")
  message(FATAL_ERROR "CLUSTAR_COMMIT='${commit}' is no commit; allowed: hexadecimal digits")
endif()

# The note is what systemd and readelf -n know as package metadata: it tells the commit of a stripped file, and of a core.
set(note "{\"type\":\"clustar\",\"name\":\"clustar\",\"version\":\"${VERSION}\",\"commit\":\"${commit}\"}")
string(REPLACE "\"" "\\\\\\\"" note "${note}")
set(text "// Written by packaging/commit.cmake.
extern \"C\" const char clustar_commit[];
extern \"C\" const char clustar_commit[] = \"${commit}\";

asm(\".pushsection .note.package,\\\"a\\\",@note\\n\"
    \".balign 4\\n .long 4\\n .long 2f - 1f\\n .long 0xcafe1a7e\\n\"
    \".asciz \\\"FDO\\\"\\n\"
    \"1: .asciz \\\"${note}\\\"\\n\"
    \"2: .balign 4\\n .popsection\\n\");
")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
