# A definition with a path of this clone, such as CLUSTAR_PLUGIN="$<TARGET_FILE:...>", would be in each command that
# compiles its target, and ccache would find nothing that another clone compiled. So the path goes into a source of its
# own, and the name becomes a macro for a `const char*`. Definitions that other directories add are moved too, at the end.
function(clustar_move_paths)
  get_property(tests GLOBAL PROPERTY CLUSTAR_TESTS)
  foreach(test ${tests})
    get_target_property(definitions ${test} COMPILE_DEFINITIONS)
    get_target_property(folder ${test} BINARY_DIR)
    set(kept "")
    foreach(definition ${definitions})
      if(definition MATCHES "^([A-Z0-9_]+)=(\".*(/|TARGET_FILE).*\")$")
        set(name ${CMAKE_MATCH_1})
        set(value ${CMAKE_MATCH_2})
        set(header ${CMAKE_BINARY_DIR}/generated/paths/${name}.h)
        set(source ${folder}/paths/${test}_${name}.cc)
        file(GENERATE OUTPUT ${source} CONTENT "extern const char path_${name}[];\nconst char path_${name}[] = ${value};\n")
        file(CONFIGURE OUTPUT ${header} CONTENT
"#pragma once
extern const char path_${name}[];
#define ${name} static_cast<const char*>(path_${name})
")
        target_sources(${test} PRIVATE ${source})
        set_source_files_properties(${source} TARGET_DIRECTORY ${test} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        target_compile_options(${test} PRIVATE "SHELL:-include ${header}")
      elseif(definition)
        list(APPEND kept "${definition}")
      endif()
    endforeach()
    set_property(TARGET ${test} PROPERTY COMPILE_DEFINITIONS ${kept})
  endforeach()
endfunction()
cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL clustar_move_paths)
