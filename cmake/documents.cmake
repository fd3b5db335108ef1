# cmake/documents.cmake - what an installed Weft says of itself: its license and documentation, a manual
# page for every program, made of its --help, and completion of gpt_train's flags for bash and zsh.
install(FILES LICENSE README.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright) # as Debian calls it
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "*.jsonl" EXCLUDE)
install(CODE "set(documents \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/installed_links.cmake\")")

# A sanitized program may not run before its environment is set up.
if(NOT TARGET gpt_train OR WEFT_SANITIZE)
    return()
endif()
set(pages "")
string(REPLACE "weft_command" "weft" names "${weft_apps}")
list(JOIN names " " names)
foreach(app ${weft_apps})
    string(REPLACE "weft_command" "weft" name ${app})
    set(page ${PROJECT_BINARY_DIR}/man/${name}.1)
    add_custom_command(OUTPUT ${page}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man
        COMMAND bash ${PROJECT_SOURCE_DIR}/scripts/man_page.sh $<TARGET_FILE:${app}>
            ${PROJECT_VERSION} ${names} > ${page}.part
        COMMAND ${CMAKE_COMMAND} -E rename ${page}.part ${page}
        DEPENDS ${app} ${PROJECT_SOURCE_DIR}/scripts/man_page.sh VERBATIM)
    list(APPEND pages ${page})
endforeach()
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

set(completions ${PROJECT_BINARY_DIR}/completion)
add_custom_command(OUTPUT ${completions}/gpt_train ${completions}/_gpt_train ${completions}/weft
    COMMAND ${CMAKE_COMMAND} -E make_directory ${completions}
    COMMAND gpt_train --completion bash > ${completions}/gpt_train
    COMMAND gpt_train --completion zsh > ${completions}/_gpt_train
    COMMAND weft_command --completion bash > ${completions}/weft
    DEPENDS gpt_train weft_command VERBATIM)
install(FILES ${completions}/gpt_train ${completions}/weft
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${completions}/_gpt_train DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
add_custom_target(documents ALL DEPENDS ${pages} ${completions}/gpt_train)
